"""How often each place was one: the sufficient statistic of a Beta posterior over masks.

With a Beta(1, 1) prior and K masks that sum to M, the posterior of a place is Beta(1 + M, 1 + K - M): its mode is M
/ K, its mean (1 + M) / (2 + K). Both are functions of two integers, so the count is all that is kept, sent and
checkpointed. (Paper 000 prints the *mean* of the masks where the sum belongs; taken literally that drives every
probability to 1/K.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.base import Bits
from subbit.codecs.bits import add_bits_to_counts


class MaskCounts:
    """Integer addition: the order in which clients answer cannot change a bit."""

    order_free = True

    def __init__(self, size: int) -> None:
        self.counts: NDArray[np.uint16] = np.zeros(size, dtype=np.uint16)
        self.total = 0

    def add(self, mask: Bits) -> None:
        add_bits_to_counts(mask, self.counts)
        self.total += 1
