"""ConvMixer (Trockman and Kolter, "Patches are all you need?", 2022), the convolutional backbone of DeltaMask.

    stem     patches of p x p by one convolution, activation, batch normalisation
    block    x + norm(act(depthwise k x k (x))), then norm(act(1 x 1 (x)))
    feature  the mean over all positions

The parameters have the same names as in timm, so its published weights (a folder or hub name with config.json and
model.safetensors, such as timm/convmixer_768_32.in1k) load without timm, which needs torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.models.classifier import Classifier
from subbit.models.head_start import kaiming_
from subbit.models.small import SmallNetwork

HUB_PREFIX = "timm/convmixer_"
ACTIVATIONS: dict[str, type[nn.Module]] = {"convmixer_768_32": nn.ReLU}
"""Not in timm's configurations: only this model uses ReLU, the others GELU."""
FILES = ("config.json", "model.safetensors")


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.fn = inner  # Named as in timm.

    def forward(self, inputs: Tensor) -> Tensor:
        changed: Tensor = self.fn(inputs)
        return changed + inputs


class ConvMixerBackbone(nn.Module):
    """Maps images [n, channels, height, width] to features [n, width]; height and width must be at least `patch`."""

    def __init__(
        self,
        width: int,
        depth: int,
        kernel: int = 7,
        patch: int = 7,
        channels: int = 3,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.width, self.channels = width, channels
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=patch, stride=patch), activation(), nn.BatchNorm2d(width)
        )
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    Residual(
                        nn.Sequential(
                            nn.Conv2d(width, width, kernel, groups=width, padding="same"),
                            activation(),
                            nn.BatchNorm2d(width),
                        )
                    ),
                    nn.Conv2d(width, width, kernel_size=1),
                    activation(),
                    nn.BatchNorm2d(width),
                )
                for _ in range(depth)
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        places: Tensor = self.blocks(self.stem(images))
        return places.mean((2, 3))


class ConvMixer(SmallNetwork):
    """ConvMixer with random weights. The small one has patches of 2 x 2, for images of about 32 x 32."""

    def __init__(
        self, input_shape: Sequence[int], classes: int, width: int = 64, depth: int = 8, kernel: int = 5, patch: int = 2
    ) -> None:
        super().__init__()
        if min(input_shape[1:]) < patch:
            raise ModelError(
                f"images of {input_shape[1]}x{input_shape[2]}: needs at least one patch of {patch}x{patch}"
            )
        self.mixer = ConvMixerBackbone(width, depth, kernel, patch, input_shape[0])
        self.head = nn.Linear(width, classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.mixer(inputs)
        return features


def is_convmixer(source: str) -> bool:
    """Whether a folder or hub name is a ConvMixer in timm's format; for a folder config.json tells."""
    config = Path(source) / "config.json"
    if not config.is_file():
        return source.startswith(HUB_PREFIX) and not Path(source).is_dir()
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False  # The loader of transformers will report the problem.
    return isinstance(settings, dict) and str(settings.get("architecture", "")).startswith("convmixer_")


def load_convmixer(source: str, classes: int, key: int, pretrained: bool = True, revision: str = "main") -> Classifier:
    """Load the backbone with timm's weights (or random ones if `pretrained=False`) and a new head."""
    from safetensors import safe_open

    from subbit.data.batches import Preprocess

    config, weights = _files(source, revision)
    settings: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    with safe_open(weights, "pt") as file:
        shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
        backbone = _built(source, shapes, str(settings.get("architecture", "")))
        wanted = backbone.state_dict()
        for name, tensor in wanted.items():
            if shapes.get(name) != list(tensor.shape):
                found = shapes.get(name, "nothing")
                raise ModelError(f"{source}: found {found} as {name}; needs {list(tensor.shape)}")
        if pretrained:
            backbone.load_state_dict({name: file.get_tensor(name) for name in wanted})
    described = settings.get("pretrained_cfg", {})
    if not isinstance(described, dict):
        raise ModelError(f"{config}: found {described!r} as pretrained_cfg; needs a table")
    side = int(described.get("input_size", [3, 224, 224])[-1])
    mean, std = described.get("mean", [0.5] * 3), described.get("std", [0.5] * 3)
    preprocess = Preprocess(side, backbone.channels, mean, std)
    head = kaiming_(nn.Linear(backbone.width, classes), key)
    return Classifier(backbone, head, "mean", preprocess)


def _built(source: str, shapes: dict[str, list[int]], architecture: str) -> ConvMixerBackbone:
    """Build the backbone from the shapes of the weights, which cannot be larger than the file."""
    stem, mixing = shapes.get("stem.0.weight", []), shapes.get("blocks.0.0.fn.0.weight", [])
    if len(stem) != 4 or len(mixing) != 4:
        raise ModelError(
            f"{source}: found no stem.0.weight or blocks.0.0.fn.0.weight; needs a ConvMixer as timm has it"
        )
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    activation = ACTIVATIONS.get(architecture, nn.GELU)
    return ConvMixerBackbone(stem[0], depth, mixing[2], stem[2], stem[1], activation).to(torch.float32)


def _files(source: str, revision: str) -> tuple[Path, Path]:
    if Path(source).is_dir():
        config, weights = (Path(source) / name for name in FILES)
        if not weights.is_file():
            raise ModelError(f"{source}: found config.json alone; needs model.safetensors beside it")
        return config, weights
    from huggingface_hub import hf_hub_download

    config, weights = (Path(hf_hub_download(source, name, revision=revision)) for name in FILES)
    return config, weights
