"""The hash of the filters: places 0..size-1 to 64 bits that look random, and the sequence of seeds to try.

Hash and seeds are those of the FastFilter C headers (xorfilter.h and binaryfusefilter.h): the finaliser of MurmurHash3
on place + seed, and splitmix64 for the seeds. For one seed the hash is a bijection, so distinct places never share all
their bits. All arithmetic is modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.jit import njit
from subbit.randomness import MASK_64

Hash = TypeVar("Hash", np.uint64, NDArray[np.uint64])

LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32, SHIFT_33 = np.uint64(32), np.uint64(33)
MULTIPLIER_1, MULTIPLIER_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)

GOLDEN = 0x9E3779B97F4A7C15
MAXIMUM_ATTEMPTS = 64
"""Seeds that a construction tries. Each succeeds with probability above one half, so the last one is never reached."""


def seeds(counter: int) -> Iterator[np.uint64]:
    """The `MAXIMUM_ATTEMPTS` seeds that follow `counter`, by splitmix64."""
    for _ in range(MAXIMUM_ATTEMPTS):
        counter = (counter + GOLDEN) & MASK_64
        mixed = ((counter ^ (counter >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK_64
        yield np.uint64(mixed ^ (mixed >> 31))


def seed_of_attempt(counter: int, attempt: int) -> np.uint64:
    """The seed number `attempt` of `seeds(counter)`, counted from 0."""
    return list(seeds(counter))[attempt]


@njit
def murmur64(value: np.uint64) -> np.uint64:
    value ^= value >> SHIFT_33
    value *= MULTIPLIER_1
    value ^= value >> SHIFT_33
    value *= MULTIPLIER_2
    return value ^ (value >> SHIFT_33)


@njit
def multiply_high(hashed: np.uint64, factor: np.uint64) -> np.uint64:
    """floor(hashed * factor / 2^64) for a factor below 2^32: maps a hash to 0..factor-1 without a division."""
    return ((hashed >> SHIFT_32) * factor + (((hashed & LOW_32) * factor) >> SHIFT_32)) >> SHIFT_32


@njit
def fingerprint(hashed: Hash) -> Hash:
    """The low 8, 16 or 32 bits of this are what a filter stores of a key."""
    return hashed ^ (hashed >> SHIFT_32)
