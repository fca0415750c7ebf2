"""Counts of ones as bit planes: adding a packed mask is a few operations on 64 positions at a time.

Bit w of plane p is bit p of the count at position w. A mask is added as in a ripple-carry adder, plane by plane, for 64
positions in one word. `MOST_PENDING` masks fit into the planes; then they are added to 16-bit counts and start again
from zero. This reads and writes one byte per position and mask instead of four.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.packed import Words
from subbit.core.jit import njit

PLANES = 4
MOST_PENDING = (1 << PLANES) - 1
WORD_BITS, BYTES = 64, 8
ZERO, LOW_BYTE = np.uint64(0), np.uint64(255)
SHIFT_1, SHIFT_2, SHIFT_8 = np.uint64(1), np.uint64(2), np.uint64(8)
SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view(np.uint64).ravel()
"""Byte k in memory of SPREAD[b] is bit k of b. Sums of these are eight counts at once, since none reaches 256."""


def empty_planes(size: int) -> NDArray[np.uint64]:
    return np.zeros((PLANES, (size + WORD_BITS - 1) // WORD_BITS), dtype=np.uint64)


@njit
def add_words(words: Words, planes: NDArray[np.uint64]) -> None:
    """Add one mask. The planes must hold fewer than `MOST_PENDING`."""
    first, second, third, fourth = planes[0], planes[1], planes[2], planes[3]
    for word in range(words.size):
        carry = words[word]
        plane = first[word]
        first[word] = plane ^ carry
        carry &= plane
        plane = second[word]
        second[word] = plane ^ carry
        carry &= plane
        plane = third[word]
        third[word] = plane ^ carry
        carry &= plane
        fourth[word] ^= carry


@njit
def flush_planes(planes: NDArray[np.uint64], counts: NDArray[np.uint16]) -> None:
    """Add the planes to the counts, modulo 2^16, and set them to zero."""
    eight = np.empty(BYTES, np.uint64)
    full = counts.size // WORD_BITS
    for word in range(planes.shape[1]):
        first, second, third, fourth = planes[0, word], planes[1, word], planes[2, word], planes[3, word]
        planes[0, word] = planes[1, word] = planes[2, word] = planes[3, word] = ZERO
        for byte in range(BYTES):
            sum_of_low = SPREAD[first & LOW_BYTE] + (SPREAD[second & LOW_BYTE] << SHIFT_1)
            sum_of_high = SPREAD[third & LOW_BYTE] + (SPREAD[fourth & LOW_BYTE] << SHIFT_1)
            eight[byte] = sum_of_low + (sum_of_high << SHIFT_2)
            first, second, third, fourth = first >> SHIFT_8, second >> SHIFT_8, third >> SHIFT_8, fourth >> SHIFT_8
        pending = eight.view(np.uint8)
        base = word * WORD_BITS
        if word < full:  # A constant number of positions is vectorised.
            for place in range(WORD_BITS):
                counts[base + place] += np.uint16(pending[place])
        else:
            for place in range(counts.size - base):
                counts[base + place] += np.uint16(pending[place])
