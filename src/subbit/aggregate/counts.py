"""Number of ones at each position: the sufficient statistic of a Beta posterior over masks.

With a Beta(1, 1) prior and K masks that sum to M, the posterior of a position is Beta(1 + M, 1 + K - M): its mode is M
/ K, its mean (1 + M) / (2 + K). Both are functions of two integers, so only the count is kept, sent and checkpointed.
(Paper 000 prints the *mean* of the masks instead of their sum; taken literally that drives every probability to 1/K.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.aggregate.robust import dropped_per_end
from subbit.codecs.codec import Bits
from subbit.codecs.packed import check_bits, words_of_bits
from subbit.codecs.sliced import MOST_PENDING, add_words, empty_planes, flush_planes


class MaskCounts:
    """Adds integers, so the order in which clients answer cannot change the result.

    Masks are added to bit planes, and these to the counts only when they are full or the counts are asked for.
    """

    order_free = True

    def __init__(self, size: int) -> None:
        self._counts: NDArray[np.uint16] = np.zeros(size, dtype=np.uint16)
        self._planes, self._pending = empty_planes(size), 0
        self.total = 0

    def add(self, mask: Bits) -> None:
        words = words_of_bits(check_bits(mask, self._counts.size))
        if self._pending == MOST_PENDING:
            self._flush()
        add_words(words, self._planes)
        self._pending += 1
        self.total += 1

    @property
    def counts(self) -> NDArray[np.uint16]:
        if self._pending:
            self._flush()
        return self._counts

    def _flush(self) -> None:
        flush_planes(self._planes, self._counts)
        self._pending = 0


class SignedCounts:
    """How often a flip switched each position on, minus how often it switched it off."""

    order_free = True

    def __init__(self, size: int) -> None:
        self._on = MaskCounts(size)
        self._off = MaskCounts(size)

    def add(self, flips: Bits, reference: Bits) -> None:
        """A flip switches a position on if it is off in the reference mask."""
        self._on.add(flips & ~reference)
        self._off.add(flips & reference)

    def mean(self, trim: float = 0.0) -> NDArray[np.float64]:
        """Mean of m_k - m_g over the clients, without `dropped_per_end` of them at each end of each position; zero if
        nobody answered.

        The sorted values of a position are a run of -1, then zeros, then a run of +1, so the counts tell what is
        dropped.
        """
        dropped = dropped_per_end(self._on.total, trim)
        left = self._on.total - 2 * dropped
        on, off = (np.clip(counts.counts.astype(np.float64) - dropped, 0, left) for counts in (self._on, self._off))
        mean: NDArray[np.float64] = (on - off) / max(1, left)
        return mean
