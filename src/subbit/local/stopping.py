"""Early stopping of a client's turn, on held-out examples of its own training data. Never on test data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from subbit.core.randomness import numpy_generator
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.local.training import Local
from subbit.models.task import Task

VALIDATION_BATCH = 512


@dataclass(frozen=True)
class StoppedLocal(Local):
    """Local training with early stopping; `epochs` is the maximum per turn."""

    patience: int | None = None
    """Stop a turn after this many epochs without a better validation loss; none: train all epochs."""
    min_delta: float = 1e-4
    """Minimum improvement of the validation loss."""
    holdout: float = 1 / 12
    """With `patience`: the share of a client's examples held out for validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.patience is None or self.patience >= 1, f"patience={self.patience}: needs at least 1, or none")
        require(0 <= self.min_delta < math.inf, f"min_delta={self.min_delta}: needs a number from 0 up")
        require(0 <= self.holdout < 1, f"holdout={self.holdout}: needs a share from 0 up to, not including, 1")

    def split(self, data: Data, key: int) -> tuple[Data, Data]:
        """The training and the held-out examples: a random split that depends only on the key."""
        count = 0 if self.patience is None else int(self.holdout * len(data))
        order = numpy_generator(key).permutation(len(data))
        return (data.select(order[count:]) if count else data), data.select(order[:count])


class Stopping:
    """The `finished` hook of one turn: `write(epoch)` writes the network to evaluate into the flat model.

    If a client is too small to hold anything out, its training loss is used.
    """

    def __init__(self, settings: StoppedLocal, task: Task, held_out: Data, write: Callable[[int], object]) -> None:
        self.settings, self.task, self.held_out, self.write = settings, task, held_out, write
        self.best, self.waited, self.epochs = math.inf, 0, 0

    def __call__(self, epoch: int, mean_loss: float) -> bool:
        self.epochs = epoch + 1
        if self.settings.patience is None:
            return False
        loss = mean_loss
        if len(self.held_out):
            self.write(epoch)
            loss = validation_loss(self.task, self.held_out)
        if loss < self.best - self.settings.min_delta:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        return self.waited >= self.settings.patience


def validation_loss(task: Task, examples: Data) -> float:
    """Mean loss of the network as written to the flat model."""
    loss = task.mean_loss(examples, VALIDATION_BATCH)
    task.flat.training_mode()
    return loss
