"""Small problems that are not classification, at module level, so that workers can be given them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_randomness

FEATURES = 6
VOCABULARY = 11
LENGTH = 7


class Stored:
    """A map-style data set."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.inputs[place], self.labels[place]


def numbers(count: int, seed: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, 0] - 2 * inputs[:, 1]


@torch_randomness(0)
def regressor() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    inputs = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0, :4].mean((1, 2)) > inputs[:, 0, 4:].mean((1, 2))).long()


@torch_randomness(0)
def image_classifier() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))


def texts(count: int, seed: int) -> dict[str, Tensor]:
    """Tokens that count up, some of them padded."""
    generator = torch.Generator().manual_seed(seed)
    first, lengths = (torch.randint(low, high, (count, 1), generator=generator) for low, high in ((1, 9), (4, 8)))
    tokens = 1 + (first + torch.arange(LENGTH)) % (VOCABULARY - 1)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": tokens * mask, "attention_mask": mask}


class Reader(nn.Module):
    """A language model with arguments of the usual names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle = nn.Embedding(VOCABULARY, 12), nn.Linear(12, 12)
        self.head = nn.Linear(12, VOCABULARY)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.middle(self.embed(input_ids)).relu() * attention_mask[..., None]
        return {"logits": self.head(hidden)}


@torch_randomness(0)
def reader() -> nn.Module:
    return Reader()


def items(columns: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    names = [*columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def padded(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Each batch as long as its longest text."""
    longest = max(int(row["attention_mask"].sum()) for row in rows)
    return {name: torch.stack([row[name][:longest] for row in rows]) for name in rows[0]}


def mean_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.squeeze(1) - labels).abs().mean()


def near(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.squeeze(1) - labels).abs() < 0.5


def job(kind: str) -> tuple[nn.Module, list[Any], Any, dict[str, Any]]:
    """Module, clients, test set and settings."""
    if kind == "regression":
        return regressor(), [numbers(30, seed) for seed in range(3)], numbers(25, 9), {"objective": "regression"}
    if kind == "stored":
        data = [Stored(*numbers(30, seed)) for seed in range(3)]
        return regressor(), data, Stored(*numbers(25, 9)), {"objective": "regression"}
    if kind == "language":
        return reader(), [texts(30, seed) for seed in range(3)], texts(25, 9), {"objective": "language"}
    if kind == "padded":
        data = [items(texts(30, seed)) for seed in range(3)]
        return reader(), data, items(texts(25, 9)), {"objective": "language", "collate": padded}
    if kind == "augmented":
        data = [Stored(*images(30, seed)) for seed in range(3)]
        return image_classifier(), data, Stored(*images(25, 9)), {"augment": "crop, flip"}
    own = {"loss": mean_error, "score": near}
    return regressor(), [numbers(30, seed) for seed in range(3)], numbers(25, 9), own
