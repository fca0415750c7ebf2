"""A guard on a client's step: what it sends must not raise the loss on its own examples.

The loss is computed in evaluation mode, on the same examples and with the same draws before and after. As long as it
has risen, the change is halved; if it still has after `HALVINGS` times, the client sends no change at all. The rule
knows no constant of a network, so a learning rate that is far too large for one costs rounds instead of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from subbit.core.devices import number
from subbit.core.randomness import derive_key, numpy_generator
from subbit.data.examples import Data, Examples
from subbit.maps.bound import BoundMap
from subbit.models.task import Task, Turn

HALVINGS = 4
GUARDED = 64
"""Most examples that are looked at."""


@dataclass
class Guard:
    """Of one turn. Made before training."""

    task: Task
    bound: BoundMap
    before: Tensor
    batch: Examples
    key: int
    """Of the draws of a probabilistic map."""
    objective: Callable[[Examples], Tensor]
    """Loss of a batch."""

    @classmethod
    def of(
        cls,
        task: Task,
        bound: BoundMap,
        trained: Tensor,
        data: Data,
        turn: Turn,
        objective: Callable[[Examples], Tensor] | None = None,
    ) -> Guard:
        where = (turn.round_number, turn.client)
        order = numpy_generator(derive_key(task.seed, "guard", *where)).permutation(len(data))
        batch = data.batch(np.sort(order[:GUARDED])).to(task.flat.device)
        key = derive_key(task.seed, "guard-draw", *where)
        return cls(task, bound, trained.detach().clone(), batch, key, objective or task.loss)

    def _loss(self, vector: Tensor) -> float:
        self.bound.network.write(vector, self.task.flat.weights, self.key)
        self.task.flat.evaluation_mode()
        with torch.no_grad():
            return number(self.objective(self.batch))

    def shorten(self, trained: Tensor) -> int:
        """Shorten the step in place until the loss is not above that before; returns how often it was halved."""
        least = self._loss(self.before)
        change = trained.detach() - self.before
        for halvings in range(HALVINGS + 1):
            loss = self._loss(trained)
            if math.isfinite(loss) and loss <= least:
                return halvings
            with torch.no_grad():
                trained.copy_(self.before + change * 0.5 ** (halvings + 1) if halvings < HALVINGS else self.before)
        return HALVINGS + 1
