"""Batches that a privacy accountant can reason about.

An epoch over shuffled examples uses every example exactly once, and batches of one size depend on each other; the known
bounds for that are weak. Under Poisson sampling every example enters every batch by a coin of its own. That is what
makes a step on a small share of the examples cost little of the budget, and what the accountants assume.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.core.randomness import numpy_generator


def system_key() -> int:
    """A key that nobody knows, in place of one that is derived from the seed."""
    return secrets.randbits(64)


@dataclass(frozen=True)
class Sampling:
    """How a client with that many examples draws its batches."""

    examples: int
    batch_size: int

    @property
    def rate(self) -> float:
        """The probability with which an example enters a batch.

        >>> Sampling(200, 50).rate, Sampling(30, 50).rate
        (0.25, 1.0)
        """
        return min(1.0, self.batch_size / self.examples)

    @property
    def expected(self) -> float:
        """Mean size of a batch. Gradients are divided by this and not by the true size, which is private."""
        return self.rate * self.examples

    @property
    def steps(self) -> int:
        """Steps of an epoch, as many as without privacy.

        >>> Sampling(201, 50).steps
        5
        """
        return math.ceil(self.examples / self.batch_size)

    def batches(self, key: int) -> Iterator[NDArray[np.int64]]:
        """One epoch. A batch may be empty: it costs a step all the same."""
        generator = numpy_generator(key)
        for _ in range(self.steps):
            yield np.flatnonzero(generator.random(self.examples) < self.rate).astype(np.int64)
