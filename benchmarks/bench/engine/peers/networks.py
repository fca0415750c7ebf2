"""The networks and the data of the jobs, from torch, numpy and transformers alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

LAST_BLOCKS = 5
CLASSES = 10


def mlp() -> nn.Module:
    """784-300-100-10: 266,610 weights."""
    layers = (nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    return nn.Sequential(nn.Flatten(), *layers)


class VitClassifier(nn.Module):
    """The mean of a ViT's tokens and a linear head; all but the last blocks are frozen."""

    def __init__(self, folder: Path) -> None:
        from transformers import ViTModel

        super().__init__()
        self.backbone = ViTModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
        self.head = nn.Linear(self.backbone.config.hidden_size, CLASSES)
        self.requires_grad_(False)
        for block in blocks_of(self)[-LAST_BLOCKS:]:
            block.requires_grad_(True)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.backbone(images).last_hidden_state[:, 1:]
        logits: Tensor = self.head(hidden.mean(1))
        return logits


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The longest list of layers."""
    return list(max((part for part in module.modules() if isinstance(part, nn.ModuleList)), key=len))


def make_network(kind: str) -> nn.Module:
    """`mlp`, or the folder of a ViT."""
    return mlp() if kind == "mlp" else VitClassifier(Path(kind))


@lru_cache
def read_clients(path: Path, clients: int) -> list[tuple[Tensor, Tensor]]:
    """The training examples in equal shares. Images become floats from -1 to 1 here, once per process."""
    with np.load(path) as arrays:
        inputs, labels = as_floats(arrays["x_train"]), torch.from_numpy(arrays["y_train"])
    return list(zip(inputs.chunk(clients), labels.chunk(clients), strict=True))


def as_floats(images: NDArray[Any]) -> Tensor:
    return torch.from_numpy(images).float().div(127.5).sub(1)
