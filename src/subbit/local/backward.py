"""The gradient of a batch, in one piece or in several that need less memory.

The loss of a batch is a mean, over its examples or over what its objective counts: tokens, pixels. So the gradient of
the batch is the mean of those of its pieces, each weighted by what it counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from subbit.core.devices import number
from subbit.core.errors import ConfigError
from subbit.data.examples import Examples
from subbit.models.task import Task


class Backward:
    def __init__(
        self, task: Task, objective: Callable[[Examples], Tensor] | None = None, micro_batch: int | None = None
    ) -> None:
        self._task, self._objective, self._most = task, objective or task.loss, micro_batch

    def __call__(self, batch: Examples, factor: float = 1.0) -> float:
        """Leaves the gradient, times the factor, in the flat model; returns the loss."""
        flat = self._task.flat
        if self._most is None or len(batch) <= self._most:
            loss = self._objective(batch)
            flat.backward(loss if factor == 1 else loss * factor)
            return number(loss)
        flat.zero_gradient()
        weight = self._task.objective.weight
        whole, mean = weight(batch), 0.0
        for piece in batch.in_batches(self._most):
            # A piece of padding alone has no loss: it would be 0 / 0.
            if share := weight(piece) / whole if whole else 0.0:
                loss = self._objective(piece)
                flat.add_gradient(loss * (share * factor))
                mean += share * number(loss)
        return mean if whole else math.nan


def refuse_pieces(task: Task, micro_batch: int | None) -> None:
    """Raises `ConfigError` where the loss of an example depends on the others of its batch."""
    if micro_batch is not None and (name := task.flat.mixing_layer()) is not None:
        raise ConfigError(
            f"micro_batch={micro_batch}: {name!r} normalises by the statistics of a batch with "
            f"batchnorm={task.flat.batchnorm}, and a piece has others; use batchnorm=frozen, or a smaller batch_size"
        )
