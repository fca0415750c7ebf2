"""Loss scaling for float16, whose smallest numbers are too large for many gradients.

The loss is multiplied by a factor before the backward pass and the gradient divided by it (Micikevicius et al., "Mixed
Precision Training", ICLR 2018). If the gradient overflows, the step is left out and the factor halved; after enough
steps without that it is doubled. The factor of a turn begins anew, so that turns do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from subbit.core.devices import number
from subbit.data.examples import Examples
from subbit.models.flat import FlatModel

START = 2.0**14
LARGEST = 2.0**24
STEPS_TO_DOUBLE = 200


class LossScale:
    def __init__(self, flat: FlatModel, backward: Callable[[Examples, float], float]) -> None:
        """`backward` leaves the gradient of a batch, times a factor, in the flat model and returns the loss."""
        self._flat, self._backward = flat, backward
        self.factor, self._good = START, 0
        self.usable = True
        """Whether the last gradient is one to step along."""

    def backward(self, batch: Examples) -> float:
        """Leaves the gradient in the flat model; returns the loss."""
        loss = self._backward(batch, self.factor)
        gradient = self._flat.gradient.div_(self.factor)
        self.usable = number(torch.isfinite(gradient).all()) == 1
        self._good = self._good + 1 if self.usable else 0
        if not self.usable:
            self.factor = max(1.0, self.factor / 2)
        elif self._good % STEPS_TO_DOUBLE == 0:
            self.factor = min(LARGEST, self.factor * 2)
        return loss
