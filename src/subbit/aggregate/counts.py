"""How often each place was one: the sufficient statistic of a Beta posterior over masks.

With a Beta(1, 1) prior and K masks that sum to M, the posterior of a place is Beta(1 + M, 1 + K - M): its mode is M
/ K, its mean (1 + M) / (2 + K). Both are functions of two integers, so the count is all that is kept, sent and
checkpointed. (Paper 000 prints the *mean* of the masks where the sum belongs; taken literally that drives every
probability to 1/K.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.aggregate.robust import dropped_per_end
from subbit.codecs.codec import Bits
from subbit.codecs.packed import add_bits_to_counts


class MaskCounts:
    """Integer addition: the order in which clients answer cannot change a bit."""

    order_free = True

    def __init__(self, size: int) -> None:
        self.counts: NDArray[np.uint16] = np.zeros(size, dtype=np.uint16)
        self.total = 0

    def add(self, mask: Bits) -> None:
        add_bits_to_counts(mask, self.counts)
        self.total += 1


class SignedCounts:
    """How often each place was switched on by a flip, minus how often it was switched off."""

    order_free = True

    def __init__(self, size: int) -> None:
        self._on = MaskCounts(size)
        self._off = MaskCounts(size)

    def add(self, flips: Bits, reference: Bits) -> None:
        """A flip switches a place on where the reference mask has it off."""
        self._on.add(flips & ~reference)
        self._off.add(flips & reference)

    def mean(self, trim: float = 0.0) -> NDArray[np.float64]:
        """Of m_k - m_g over the clients, `dropped_per_end` of them left out at each end of each place; zero where
        nobody answered.

        The sorted values of a place are so many -1, then zeros, then so many +1: what is dropped is known from counts.
        """
        dropped = dropped_per_end(self._on.total, trim)
        left = self._on.total - 2 * dropped
        on, off = (np.clip(counts.counts.astype(np.float64) - dropped, 0, left) for counts in (self._on, self._off))
        mean: NDArray[np.float64] = (on - off) / max(1, left)
        return mean
