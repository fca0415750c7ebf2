"""Local training, the same for every method: batches, forward, backward, one optimiser over one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from subbit.config.values import require
from subbit.data.batches import batches
from subbit.data.examples import Examples
from subbit.errors import SubbitError
from subbit.methods.base import Task, Turn
from subbit.models.reparametrisation import Reparametrisation
from subbit.randomness import derive_key, torch_randomness


class TrainingError(SubbitError):
    """Local training that cannot go on, e.g. a loss that is no longer a number. The client counts as failed."""


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in its turn. The optimiser starts anew in every turn."""

    epochs: int = 1
    batch_size: int = 64
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    """SGD only."""
    weight_decay: float = 0.0
    gradient_clip: float | None = None
    """Longer gradients are scaled down to this norm before each step; none: no bound."""
    warmup_rounds: int = 0
    """The learning rate rises linearly over that many first rounds of the run."""
    schedule: Literal["constant", "cosine"] = "constant"
    """`cosine`: the learning rate falls to nearly zero over the rounds of the run."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs={self.epochs}: needs at least 1")
        require(self.batch_size >= 1, f"batch_size={self.batch_size}: needs at least 1")
        require(0 <= self.learning_rate < math.inf, f"learning_rate={self.learning_rate}: needs a number from 0 up")
        require(0 <= self.momentum < 1, f"momentum={self.momentum}: needs 0 up to, not including, 1")
        require(self.weight_decay >= 0, f"weight_decay={self.weight_decay}: needs a number from 0 up")
        clip = self.gradient_clip
        require(clip is None or clip > 0, f"gradient_clip={clip}: needs a number above 0, or none")
        require(self.warmup_rounds >= 0, f"warmup_rounds={self.warmup_rounds}: needs a number from 0 up")

    def rate_factor(self, round_number: int, rounds: int) -> float:
        """What the learning rate is multiplied by in that round.

        >>> [LocalTraining(warmup_rounds=3).rate_factor(number, 10) for number in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        factor = min(1.0, (round_number + 1) / (self.warmup_rounds + 1))
        return factor if self.schedule == "constant" else factor * (1 + math.cos(math.pi * round_number / rounds)) / 2

    def make_optimizer(self, trained: Tensor) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam([trained], lr=self.learning_rate, weight_decay=self.weight_decay)
        return torch.optim.SGD([trained], lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay)

    def draw_batches(self, count: int, key: int) -> Iterator[NDArray[np.int64]]:
        """The examples of every step of an epoch, by position."""
        return batches(count, self.batch_size, key)


def train_locally(
    task: Task,
    settings: LocalTraining,
    reparametrisation: Reparametrisation,
    trained: Tensor,
    data: Examples,
    turn: Turn,
    *,
    constrain: Callable[[Tensor], object] | None = None,
    objective: Callable[[Examples], Tensor] | None = None,
    adjust: Callable[[Tensor, Tensor, int, int], object] | None = None,
    backward: Callable[[Examples], float] | None = None,
    finished: Callable[[int, float], bool] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> float:
    """Train the vector in place on one client's data; returns the mean loss of the last epoch.

    objective   loss of a batch, instead of the cross entropy of the module's outputs
    backward    loss of a batch, with its gradient left in `flat.gradient`, instead of forward and backward altogether
    adjust      changes the gradient of the trained vector, in place: (trained, gradient, epoch, step)
    constrain   changes the trained vector, in place, after every step
    finished    asked after every epoch, with its number and mean loss, whether that was enough
    optimizer   of the trained vector, instead of the one that the settings make
    """
    flat, seed = task.flat, task.seed
    compute = backward or partial(_backward, task, objective or partial(_cross_entropy, task))
    where = (turn.round_number, turn.client)
    trained.grad = torch.zeros_like(trained)
    optimizer = optimizer or settings.make_optimizer(trained)
    for group in optimizer.param_groups:
        group["lr"] *= settings.rate_factor(turn.round_number, task.rounds)
    flat.attach()
    flat.training_mode()
    step, mean_loss = 0, 0.0
    with torch_randomness(derive_key(seed, "module", *where)):
        for epoch in range(settings.epochs):
            losses = []
            for chosen in settings.draw_batches(len(data), derive_key(seed, "batches", *where, epoch)):
                batch = data.select(chosen)
                reparametrisation.write(trained, flat.weights, derive_key(seed, "training-draw", *where, step))
                loss = compute(batch)
                if not math.isfinite(loss):
                    raise TrainingError(f"the loss is {loss} in step {step}: a smaller learning_rate may help")
                reparametrisation.pull_back(flat.gradient, trained, trained.grad)
                if adjust is not None:
                    with torch.no_grad():
                        adjust(trained, trained.grad, epoch, step)
                if settings.gradient_clip is not None:
                    torch.nn.utils.clip_grad_norm_(trained, settings.gradient_clip)
                optimizer.step()
                if constrain is not None:
                    with torch.no_grad():
                        constrain(trained)
                losses.append(loss)
                step += 1
            mean_loss = sum(losses) / max(1, len(losses))
            if finished is not None and finished(epoch, mean_loss):
                break
    return mean_loss


def _cross_entropy(task: Task, batch: Examples) -> Tensor:
    return functional.cross_entropy(task.flat.module(batch.inputs), batch.labels)


def _backward(task: Task, objective: Callable[[Examples], Tensor], batch: Examples) -> float:
    task.flat.zero_gradient()
    loss = objective(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.item())
