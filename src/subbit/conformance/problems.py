"""Small real problems for testing methods: handwritten digits over a few clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.config.resolve import Settings, resolve
from subbit.core.randomness import torch_randomness
from subbit.data import Examples, load_dataset
from subbit.runtime.problem import Problem


def settings(**values: Any) -> Settings:
    return resolve({"head": "keep", "rounds": 2, "clients": 3, **values})


class Scaled(nn.Module):
    """Scales uint8 images to [0, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255


def mlp(hidden: int = 16) -> nn.Module:
    with torch_randomness(1):
        return nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def conv_net() -> nn.Module:
    with torch_randomness(2):
        return nn.Sequential(
            Scaled(),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


class SmallViT(nn.Module):
    """A transformers ViT with two blocks and a linear head."""

    def __init__(self) -> None:
        from transformers import ViTConfig, ViTModel

        super().__init__()
        config = ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=8,
            patch_size=4,
            num_channels=1,
            hidden_dropout_prob=0.1,
        )
        self.backbone = ViTModel(config, add_pooling_layer=False)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(images.float() / 255).last_hidden_state[:, 0])
        return logits


def small_vit() -> nn.Module:
    with torch_randomness(3):
        return SmallViT()


MODULES = {"mlp": mlp, "conv": conv_net, "vit": small_vit}


def digits_problem(
    module: nn.Module | None = None, parts: list[NDArray[np.int64]] | None = None, examples: int = 240
) -> Problem:
    """Clients hold consecutive thirds of the first examples, unless `parts` is given."""
    dataset = load_dataset("digits", limit=examples, test_limit=100)
    if parts is None:
        parts = [np.asarray(part, dtype=np.int64) for part in np.array_split(np.arange(len(dataset.train)), 3)]
    return Problem(
        module=module or mlp(),
        train=dataset.train,
        parts=tuple(parts),
        test=dataset.test,
        classes=10,
        pretrained=False,
        model_name="test",
        dataset_name="digits",
    )


def constant_examples(value: float, labels: list[int], width: int = 4) -> Examples:
    return Examples(torch.full((len(labels), width), value), torch.tensor(labels))
