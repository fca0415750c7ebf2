"""Overlap aggregation: an element is decided by the clients whose structure contains it, if there are at least two.

Paper 004, section 3.6: "the central server only performs the averaging aggregation on elements that appear in two or
more binary masks". An element appears in a mask if it is not pruned, whatever its bit. With n holders of an element and
M ones among their bits

    decided   n >= 2 and 2 M != n      the majority
    open      n < 2 or a tie           every client keeps its own bit

Only two integers per element are kept, and they can be added in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.packed import add_bits_to_counts

Numbers = NDArray[np.uint16]
Booleans = NDArray[np.bool_]

SHARED = 2
"""Number of holders from which on an element is shared."""


@dataclass(frozen=True)
class Overlap:
    """For every element: how many clients hold it, and how many of these have a one."""

    ones: Numbers
    holders: Numbers

    @classmethod
    def of_nobody(cls, size: int) -> Overlap:
        return cls(np.zeros(size, dtype=np.uint16), np.zeros(size, dtype=np.uint16))

    def add(self, structure: Bits, mask: Bits) -> None:
        """Add one client. Bits outside its structure are not votes."""
        add_bits_to_counts(structure & mask, self.ones)
        add_bits_to_counts(structure, self.holders)

    @property
    def decided(self) -> Booleans:
        decided: Booleans = (self.holders >= SHARED) & (2 * self.ones.astype(np.uint32) != self.holders)
        return decided

    def merge(self, own: Booleans) -> Booleans:
        """One client's bits after the aggregation, before its structure is applied."""
        majority = 2 * self.ones.astype(np.uint32) > self.holders
        merged: Booleans = np.where(self.decided, majority, own)
        return merged

    # Encoding for the downlink: 0 and 2 are decided zeros and ones, 1 is open. Read as counts of ones among two
    # holders, these numbers have the same meaning, so the client decodes an overlap again.

    def as_votes_of_two(self) -> Numbers:
        return np.where(self.decided, 2 * self.merge(np.zeros(self.ones.size, np.bool_)), 1).astype(np.uint16)

    @classmethod
    def of_votes_of_two(cls, votes: Numbers) -> Overlap:
        return cls(votes, np.full(votes.size, SHARED, dtype=np.uint16))
