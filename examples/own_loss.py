"""Your own module, your own loss and your own score: `python examples/own_loss.py`.

Three hospitals predict a length of stay. Some recorded stays are wildly wrong, so the loss is Huber's, and the score is
the share of predictions that are off by less than half a day.
"""

import torch
from torch import Tensor, nn

from subbit import fine_tune


def huber(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.huber_loss(outputs.squeeze(1), labels, delta=0.5)


def within_half_a_day(outputs: Tensor, labels: Tensor) -> Tensor:
    """One number for each example; the score is their mean."""
    return (outputs.squeeze(1) - labels).abs() < 0.5


def hospital(number: int, patients: int, mistakes: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(patients, 6, generator=generator)
    days = 4 + inputs @ torch.tensor([1.0, -0.5, 0.25, 0, 0, 0.5]) + inputs[:, 0] * inputs[:, 1]
    return inputs, torch.where(torch.rand(patients, generator=generator) < mistakes, 60.0, days)


if __name__ == "__main__":
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    clients = [hospital(number, 400, mistakes=0.05) for number in range(3)]
    result = fine_tune(
        module, clients, hospital(9, 300), loss=huber, score=within_half_a_day,
        method="fedavg", rounds=10, epochs=2, learning_rate=0.01,
    )  # fmt: skip
    print(f"{result.score_name} {result.score_before:.2f} -> {result.score:.2f}, loss {result.scores['loss']:.3f}")
    assert result.score > 0.8
