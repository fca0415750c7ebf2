"""Hash of the filters: maps positions 0..size-1 to 64 random-looking bits. Also the sequence of seeds to try.

Hash and seeds are those of the FastFilter C headers (xorfilter.h and binaryfusefilter.h): the finaliser of MurmurHash3
on position + seed, and splitmix64 for the seeds. For a fixed seed the hash is a bijection, so distinct positions never
have the same hash. All arithmetic is modulo 2^64.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from subbit.core.jit import njit
from subbit.core.randomness import MASK_64

Hash = TypeVar("Hash", np.uint64, NDArray[np.uint64])
Hashes = NDArray[np.uint64]

LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_18, SHIFT_32, SHIFT_33 = np.uint64(18), np.uint64(32), np.uint64(33)
MULTIPLIER_1, MULTIPLIER_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)

GOLDEN = 0x9E3779B97F4A7C15
MAXIMUM_ATTEMPTS = 64
"""Maximum number of seeds to try. Most seeds succeed, so the limit is never reached in practice."""
BLOCK = 128
"""Hashes computed together: the compiler vectorises a loop without lookups."""


def seed_of_attempt(counter: int, attempt: int) -> np.uint64:
    """Seed number `attempt`, from 0, that splitmix64 draws after `counter`."""
    counter = (counter + (attempt + 1) * GOLDEN) & MASK_64
    mixed = ((counter ^ (counter >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK_64
    return np.uint64(mixed ^ (mixed >> 31))


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
    """The low 8, 16 or 32 bits of this are the fingerprint that a filter stores."""
    return hashed ^ (hashed >> SHIFT_32)


@njit
def hash_block(first: np.uint64, factor: np.uint64, hashes: Hashes, scaled: Hashes) -> None:
    """The hashes of first, first + 1, ... (seed included), unchanged and mapped to 0..factor-1."""
    for index in range(hashes.size):
        hashed = murmur64(first + np.uint64(index))
        hashes[index] = hashed
        scaled[index] = multiply_high(hashed, factor)


@njit
def group_by_hash(
    positions: NDArray[np.uint32], seed: np.uint64, dropped: np.uint32, group_bits: np.uint64
) -> NDArray[np.uint32]:
    """The positions, ordered by the upper `group_bits` bits of the hash of position >> dropped.

    In this order each group works on a small part of the slots, which stays in the cache.
    """
    shift = np.uint64(64) - group_bits
    starts = np.zeros((1 << np.int64(group_bits)) + 1, np.int64)
    for position in positions:
        starts[np.int64(murmur64(np.uint64(position >> dropped) + seed) >> shift) + 1] += 1
    for index in range(1, starts.size):
        starts[index] += starts[index - 1]
    grouped = np.empty_like(positions)
    for position in positions:
        group = np.int64(murmur64(np.uint64(position >> dropped) + seed) >> shift)
        grouped[starts[group]] = position
        starts[group] += 1
    return grouped
