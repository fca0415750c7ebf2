"""Poisson batches, as assumed by privacy accountants.

An epoch over shuffled examples uses every example exactly once, and batches of fixed size depend on each other; the
known bounds for that are weak. With Poisson sampling every example enters every batch independently. This is why a step
on a small share of the examples spends little of the budget, and it is what the accountants assume.
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
    """A random, secret key, instead of one derived from the seed."""
    return secrets.randbits(64)


@dataclass(frozen=True)
class Sampling:
    """How a client with this many examples draws its batches."""

    examples: int
    batch_size: int

    @property
    def rate(self) -> float:
        """The probability that an example is in a batch.

        >>> Sampling(200, 50).rate, Sampling(30, 50).rate
        (0.25, 1.0)
        """
        return min(1.0, self.batch_size / self.examples)

    @property
    def expected(self) -> float:
        """Mean batch size. Gradients are divided by this and not by the actual size, which is private."""
        return self.rate * self.examples

    @property
    def steps(self) -> int:
        """Steps per epoch, as many as without privacy.

        >>> Sampling(201, 50).steps
        5
        """
        return math.ceil(self.examples / self.batch_size)

    def batches(self, key: int) -> Iterator[NDArray[np.int64]]:
        """The batches of one epoch. A batch may be empty and still counts as a step."""
        generator = numpy_generator(key)
        for _ in range(self.steps):
            yield np.flatnonzero(generator.random(self.examples) < self.rate).astype(np.int64)
