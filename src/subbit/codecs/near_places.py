"""Which positions lie near their threshold, and how near: flips happen there (`subbit.codecs.near`).

Of the uniform u and the threshold t of a position only the upper 16 bits count. With v(x) = x (1 - x) a position is
near if |u - t| < cut (v(u) + v(t)): to first order, if the logits differ by less than twice the cut. This takes a few
integer operations on vectors and no table, so that the many positions which are not near cost next to nothing. Those
which are near get a context, as in `subbit.codecs.context`: the distance of the logits, in quarters of
an octave, here from a table over the upper 12 bits, which stays in the first cache.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.context import context_of_distance, logit_table
from subbit.codecs.packed import DE_BRUIJN_PLACES, DE_BRUIJN_SHIFT, DE_BRUIJN_WORD
from subbit.codecs.sampler import Keys, Thresholds, hash_place
from subbit.core.jit import njit

Pairs = NDArray[np.uint32]
"""The upper 16 bits of a uniform, then those of its threshold."""
Tables = tuple[NDArray[np.int16], NDArray[np.uint8]]

BLOCK = 4096  # All arrays of a block fit into the first cache.
CUTS = np.array([(8 + index % 8) << (index // 8) for index in range(88)], dtype=np.uint32)
"""In units of 2^-9, eight in each octave. For the last ones nearly all positions are near."""
TABLE_BITS = 12
SHIFT_16, CUT_SHIFT = np.uint32(16), np.uint32(9)
LOWER, UPPER = np.uint32(0x0000FFFF), np.uint32(0xFFFF0000)
FIRST_SHIFT, SECOND_SHIFT = np.uint32(32 - TABLE_BITS), np.uint32(16 - TABLE_BITS)
PACK, SHIFT_56 = np.uint64(0x0102040810204080), np.uint64(56)


@cache
def tables() -> Tables:
    """(logit of the upper 12 bits, context of a distance)"""
    return logit_table(TABLE_BITS), context_of_distance()


@njit
def ratio_parts(uniform: np.uint32, threshold: np.uint32) -> tuple[np.uint32, np.uint32]:
    """A position is near if the first number is below the second times the cut. For numbers of 16 bits."""
    distance = np.uint32(abs(np.int32(uniform) - np.int32(threshold)))
    spread = np.uint32(
        np.uint32(uniform * np.uint32(LOWER - uniform)) + np.uint32(threshold * np.uint32(LOWER - threshold))
    )
    return np.uint32(distance << CUT_SHIFT), np.uint32(spread >> SHIFT_16)


@njit
def find_near(
    thresholds: Thresholds, start: np.uint32, keys: Keys, cut: np.uint32, pairs: Pairs, flags: Bits, packed: Bits
) -> None:
    """Of one block: uniforms and thresholds, and packed bits that are one where a position is near.

    A loop for each step: together they are not turned into vectors."""
    for place in range(thresholds.size):
        uniform = hash_place(np.uint32(start + np.uint32(place)), keys[0], keys[1], keys[2])
        pairs[place] = (uniform & UPPER) | (thresholds[place] >> SHIFT_16)
    for place in range(thresholds.size):
        distance, spread = ratio_parts(np.uint32(pairs[place] >> SHIFT_16), np.uint32(pairs[place] & LOWER))
        flags[place] = distance < np.uint32(spread * cut)
    flags[thresholds.size :] = 0
    eights = flags.view(np.uint64)
    for byte in range(packed.size):
        packed[byte] = np.uint8((eights[byte] * PACK) >> SHIFT_56)


@njit
def place_of(lowest: np.uint64) -> np.uint32:
    """The position of the one bit of a word."""
    return np.uint32(DE_BRUIJN_PLACES[(lowest * DE_BRUIJN_WORD) >> DE_BRUIJN_SHIFT])


@njit
def count_zones(
    places: NDArray[np.uint32], thresholds: Thresholds, keys: Keys, cuts: NDArray[np.uint32], zones: NDArray[np.int64]
) -> None:
    """How many of these positions are near for each cut and for none before it; the last zone is beyond all cuts."""
    for place in places:
        uniform = np.uint32(hash_place(place, keys[0], keys[1], keys[2]) >> SHIFT_16)
        distance, spread = ratio_parts(uniform, np.uint32(thresholds[place] >> SHIFT_16))
        low, high = 0, cuts.size
        while low < high:
            middle = (low + high) // 2
            if distance < np.uint32(spread * cuts[middle]):
                high = middle
            else:
                low = middle + 1
        zones[low] += 1
