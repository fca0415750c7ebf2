"""One small network of each kind that a flat model must take, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_generator, torch_randomness
from subbit.models.classifier import Classifier
from subbit.models.small import CharLstm, Mlp, SmallConvNet

CLASSES = 3
TINY = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}


def mlp() -> tuple[nn.Module, Tensor]:
    return Mlp((6, 5, 5, CLASSES)), torch.randn(7, 6, generator=torch_generator(1))


def convnet() -> tuple[nn.Module, Tensor]:
    return SmallConvNet((2, 8, 8), CLASSES, (4, 8)), torch.randn(7, 2, 8, 8, generator=torch_generator(1))


def lstm() -> tuple[nn.Module, Tensor]:
    return CharLstm(11, CLASSES, embedding=4, hidden=6), torch.randint(0, 11, (7, 9), generator=torch_generator(1))


def vit() -> tuple[nn.Module, Tensor]:
    from transformers import ViTConfig, ViTModel

    backbone = ViTModel(ViTConfig(**TINY, intermediate_size=32), add_pooling_layer=False)
    return Classifier(backbone, nn.Linear(16, CLASSES)), torch.randn(7, 3, 16, 16, generator=torch_generator(1))


BUILDERS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": mlp,
    "convnet": convnet,
    "lstm": lstm,
    "vit": vit,
}


def build(kind: str) -> tuple[nn.Module, Tensor]:
    with torch_randomness(5):
        return BUILDERS[kind]()


def labels() -> Tensor:
    return torch.arange(7) % CLASSES
