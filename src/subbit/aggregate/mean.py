"""Weighted mean of real vectors, added one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class WeightedMean:
    """Sums in float64. Floating-point sums depend on the order, so vectors are added in the order of the clients."""

    order_free = False

    def __init__(self, size: int) -> None:
        self.sum = np.zeros(size, dtype=np.float64)
        self.weight = 0.0

    def add(self, vector: NDArray[Any], weight: float) -> None:
        self.sum += np.multiply(vector, weight, dtype=np.float64)
        self.weight += weight

    def mean(self) -> NDArray[np.float64]:
        """The mean; zero if nothing with a weight was added."""
        return self.sum / self.weight if self.weight else self.sum
