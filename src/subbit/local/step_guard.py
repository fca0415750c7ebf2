"""A guard on a client's step: what it sends must not raise the loss on its own examples.

The loss is computed in evaluation mode, on the same examples and with the same draws before and after. As long as it
has risen, the change is halved; if it still has after `HALVINGS` times, the client sends no change at all. The rule
knows no constant of a network, so a learning rate that is far too large for one costs rounds instead of the network.

`guard=start` also looks at what was received. No client sees what the mean of all clients forgets, but each sees its
own part of it: if the received network has a higher loss on a client's examples than the one at the start of the run,
beyond doubt, the client trains from half of the way back, or from the start. Its change then says so, and the server
follows as many as say so. This costs no byte and needs a map whose zero is the start.
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
PARTS = 8
"""Into which they are divided to see whether a difference is more than noise."""
DOUBT = 2.0
"""Standard errors of a difference that is beyond doubt."""


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

    def go_back(self, trained: Tensor) -> bool:
        """If what was received is worse than the start, move it there or half of the way, in place."""
        received, start = self._losses(trained), self._losses(self.bound.toward_start(trained, 0.0))
        if len(received) < PARTS or not is_above(received, start):
            return False
        half = self._losses(self.bound.toward_start(trained, 0.5))
        with torch.no_grad():
            trained.copy_(self.bound.toward_start(trained, 0.5 if sum(half) < sum(start) else 0.0))
        self.before = trained.detach().clone()
        return True

    def _losses(self, vector: Tensor) -> list[float]:
        """Of all parts, as the network is scored: without correction for the client's own mix of classes."""
        self.bound.network.write(vector, self.task.flat.weights, self.key)
        self.task.flat.evaluation_mode()
        parts = [part for part in np.array_split(np.arange(len(self.batch)), PARTS) if len(part)]
        with torch.no_grad():
            return [number(self.task.loss(self.batch.select(part))) for part in parts]

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


def is_above(losses: list[float], others: list[float]) -> bool:
    """Whether paired losses are higher by more than `DOUBT` standard errors. Losses that are no numbers are.

    >>> is_above([1.1, 1.2, 1.0], [1.0, 1.0, 0.9]), is_above([1.1, 0.7, 1.3], [1.0, 1.0, 1.0])
    (True, False)
    """
    if not all(map(math.isfinite, losses)):
        return all(map(math.isfinite, others))
    differences = np.subtract(losses, others)
    return bool(differences.mean() > DOUBT * differences.std(ddof=1) / math.sqrt(len(losses)))
