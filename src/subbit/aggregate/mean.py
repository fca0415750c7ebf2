"""Weighted mean of real vectors, added one at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.jit import njit

BLOCK = 64
MANY = 1 << 19
"""Numbers. Fewer are added without the kernel: loading numba takes as long as it saves in hundreds of vectors."""
WORDS: dict[Any, Any] = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


class WeightedMean:
    """Sums in float64. Floating-point sums depend on the order, so vectors are added in the order of the clients."""

    order_free = False

    def __init__(self, size: int) -> None:
        self.sum = np.zeros(size, dtype=np.float64)
        self.weight = 0.0

    def add(self, vector: NDArray[Any], weight: float) -> None:
        vector = np.asarray(vector)
        known = vector.shape == self.sum.shape and vector.dtype in WORDS and math.isfinite(weight)
        if known and vector.size >= MANY:
            vector = np.ascontiguousarray(vector)
            _add_product(vector, vector.view(WORDS[vector.dtype]), float(weight), self.sum)
        else:
            self.sum += np.multiply(vector, weight, dtype=np.float64)
        self.weight += weight

    def mean(self) -> NDArray[np.float64]:
        """The mean; zero if nothing with a weight was added."""
        return self.sum / self.weight if self.weight else self.sum


@njit
def _add_product(vector: NDArray[Any], words: NDArray[Any], weight: float, total: NDArray[np.float64]) -> None:
    """total += vector * weight, bit for bit, without a copy of the product.

    `words` are the bits of the vector. Blocks of zeros, of which a sparse change has many, are not added: a sum that
    starts from 0 is never -0, the only number that adding a zero changes.
    """
    for start in range(0, vector.size, BLOCK):
        # Slices, whose places begin at 0: these loops become vector instructions.
        some, bits, sums = vector[start : start + BLOCK], words[start : start + BLOCK], total[start : start + BLOCK]
        seen = bits[0]
        for place in range(bits.size):
            seen |= bits[place]
        if seen != 0:
            for place in range(some.size):
                sums[place] += np.float64(some[place]) * weight
