"""Binary fuse filters, 3-wise and 4-wise.

Graf & Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", ACM J. of Experimental Algorithmics 2022. A
key is present if the XOR of its `arity` slots is its fingerprint. The slots lie in `arity` consecutive segments: with h
the 64-bit hash, L the segment length (a power of two) and C the number of segments in which a key can start,

    slot_0 = floor(h * C * L / 2^64)
    slot_j = (slot_0 + j * L) ^ ((h >> 18 * (arity - 1 - j)) mod L)   for j = 1 .. arity - 1

The array of (C + arity - 1) * L slots has 1.125 (3-wise) or 1.075 (4-wise) slots per key for large sets. Lengths, hash,
seeds and succession of the 3-wise filter are those of binaryfusefilter.h of FastFilter: the same bytes for the same
keys. The 4-wise filter is the same construction with the lengths of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.base import Bits
from subbit.codecs.hashing import fingerprint, multiply_high, murmur64, seeds
from subbit.codecs.jit import njit
from subbit.codecs.peeling import Fingerprints, Slots, assign, peel
from subbit.errors import PayloadError
from subbit.randomness import MASK_64

REFERENCE_COUNTER = 0x726B2B9D438B9D4D
"""Where the C header starts its seeds. Ours start there plus the shared key: key 0 gives the bytes of the header."""
MAXIMUM_SEGMENT_LENGTH = 1 << 18
SHIFT_18, SHIFT_36 = np.uint64(18), np.uint64(36)
BLOCK = 256
"""Places that are hashed together: a loop without lookups is one that the compiler turns into vector instructions."""


@dataclass(frozen=True)
class FuseShape:
    """The lengths of a filter for `key_count` keys: both sides derive them, none is read from the wire."""

    segment_length: int
    start_length: int
    """C * L: the slots in which a key can start."""
    slot_count: int


def fuse_shape(key_count: int, arity: int) -> FuseShape:
    # A single key has no logarithm to divide by, so the header gives it the smallest array.
    logarithm = math.log(key_count)
    if arity == 3:
        exponent = math.floor(logarithm / math.log(3.33) + 2.25)
        factor = max(1.125, 0.875 + 0.25 * math.log(1_000_000) / logarithm) if key_count > 1 else 0.0
    else:
        exponent = max(0, math.floor(logarithm / math.log(2.91) - 0.5))
        factor = max(1.075, 0.77 + 0.305 * math.log(600_000) / logarithm) if key_count > 1 else 0.0
    segment_length = min(1 << exponent, MAXIMUM_SEGMENT_LENGTH)
    capacity = math.floor(key_count * factor + 0.5)
    starts = max(1, -(-capacity // segment_length) - (arity - 1))
    return FuseShape(segment_length, starts * segment_length, (starts + arity - 1) * segment_length)


def seed_counter(key: int) -> int:
    return (REFERENCE_COUNTER + key) & MASK_64


def build_fuse(positions: NDArray[np.uint32], key: int, arity: int, dtype: np.dtype[Any]) -> tuple[int, Fingerprints]:
    """The number of the seed that worked, and the slots. `positions` are at least one, all different."""
    shape = fuse_shape(positions.size, arity)
    order, chosen = np.empty_like(positions), np.empty_like(positions)
    bucket_bits = np.uint64(max(1, (shape.start_length // shape.segment_length - 1).bit_length()))
    for attempt, seed in enumerate(seeds(seed_counter(key))):
        with np.errstate(over="ignore"):
            hashes = _sorted_hashes(positions, seed, bucket_bits)
            slots = _slots(hashes, arity, np.uint64(shape.segment_length), np.uint64(shape.start_length))
            if peel(slots, shape.slot_count, order, chosen) == positions.size:
                fingerprints = np.zeros(shape.slot_count, dtype)
                assign(slots, order, chosen, fingerprint(hashes).astype(dtype), fingerprints)
                return attempt, fingerprints
    raise PayloadError(f"no binary fuse filter of {positions.size} keys was found with any seed of key {key}")


def query_fuse(fingerprints: Fingerprints, seed: np.uint64, shape: FuseShape, arity: int, size: int) -> Bits:
    """Packed bits of the places 0..size-1 that the filter contains."""
    out = np.empty((size + 7) // 8, np.uint8)
    kernel = _query_3 if arity == 3 else _query_4
    mask = np.uint64(np.iinfo(fingerprints.dtype).max)
    with np.errstate(over="ignore"):
        kernel(fingerprints, seed, np.uint64(shape.segment_length), np.uint64(shape.start_length), mask, out)
    if size % 8:
        out[-1] &= np.uint8((1 << size % 8) - 1)
    return out


@njit
def _sorted_hashes(positions: NDArray[np.uint32], seed: np.uint64, bucket_bits: np.uint64) -> NDArray[np.uint64]:
    """Hashes grouped by their upper bits: one group after the other then works on a few segments that stay in cache."""
    shift = np.uint64(64) - bucket_bits
    starts = np.zeros((1 << bucket_bits) + 1, np.int64)
    for position in positions:
        starts[np.int64(murmur64(np.uint64(position) + seed) >> shift) + 1] += 1
    for index in range(1, starts.size):
        starts[index] += starts[index - 1]
    hashes = np.empty(positions.size, np.uint64)
    for position in positions:
        hashed = murmur64(np.uint64(position) + seed)
        bucket = np.int64(hashed >> shift)
        hashes[starts[bucket]] = hashed
        starts[bucket] += 1
    return hashes


@njit
def _slots(hashes: NDArray[np.uint64], arity: int, segment_length: np.uint64, start_length: np.uint64) -> Slots:
    slots = np.empty((hashes.size, arity), np.uint32)
    mask = segment_length - np.uint64(1)
    for key in range(hashes.size):
        slot = multiply_high(hashes[key], start_length)
        slots[key, 0] = slot
        for way in range(1, arity):
            slot += segment_length
            slots[key, way] = slot ^ ((hashes[key] >> (SHIFT_18 * np.uint64(arity - 1 - way))) & mask)
    return slots


@njit
def _hash_block(
    first: np.uint64, start_length: np.uint64, hashes: NDArray[np.uint64], starts: NDArray[np.uint64]
) -> None:
    for index in range(BLOCK):
        hashed = murmur64(first + np.uint64(index))
        hashes[index] = hashed
        starts[index] = multiply_high(hashed, start_length)


@njit
def _query_3(
    fingerprints: Fingerprints,
    seed: np.uint64,
    segment_length: np.uint64,
    start_length: np.uint64,
    fingerprint_mask: np.uint64,
    out: Bits,
) -> None:
    mask = segment_length - np.uint64(1)
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK // 8):
        _hash_block(np.uint64(8 * block) + seed, start_length, hashes, starts)
        for byte in range(min(BLOCK // 8, out.size - block)):
            packed = np.uint64(0)
            for bit in range(8):
                hashed, slot_0 = hashes[8 * byte + bit], starts[8 * byte + bit]
                slot_1 = slot_0 + segment_length
                slot_2 = slot_1 + segment_length
                slot_1 ^= (hashed >> SHIFT_18) & mask
                slot_2 ^= hashed & mask
                found = np.uint64(fingerprints[slot_0] ^ fingerprints[slot_1] ^ fingerprints[slot_2])
                packed |= np.uint64(((found ^ fingerprint(hashed)) & fingerprint_mask) == 0) << np.uint64(bit)
            out[block + byte] = packed


@njit
def _query_4(
    fingerprints: Fingerprints,
    seed: np.uint64,
    segment_length: np.uint64,
    start_length: np.uint64,
    fingerprint_mask: np.uint64,
    out: Bits,
) -> None:
    mask = segment_length - np.uint64(1)
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK // 8):
        _hash_block(np.uint64(8 * block) + seed, start_length, hashes, starts)
        for byte in range(min(BLOCK // 8, out.size - block)):
            packed = np.uint64(0)
            for bit in range(8):
                hashed, slot_0 = hashes[8 * byte + bit], starts[8 * byte + bit]
                slot_1 = slot_0 + segment_length
                slot_2 = slot_1 + segment_length
                slot_3 = slot_2 + segment_length
                slot_1 ^= (hashed >> SHIFT_36) & mask
                slot_2 ^= (hashed >> SHIFT_18) & mask
                slot_3 ^= hashed & mask
                found = np.uint64(
                    fingerprints[slot_0] ^ fingerprints[slot_1] ^ fingerprints[slot_2] ^ fingerprints[slot_3]
                )
                packed |= np.uint64(((found ^ fingerprint(hashed)) & fingerprint_mask) == 0) << np.uint64(bit)
            out[block + byte] = packed
