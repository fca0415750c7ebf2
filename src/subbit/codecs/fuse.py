"""Binary fuse filters, 3-wise and 4-wise.

Graf & Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", ACM J. of Experimental Algorithmics 2022. A key
is present if the XOR of its `arity` slots is its fingerprint. The slots lie in `arity` consecutive segments: with h the
64-bit hash, L the segment length (a power of two) and C the number of segments in which a key can start,

    slot_0 = floor(h * C * L / 2^64)
    slot_j = (slot_0 + j * L) ^ ((h >> 18 * (arity - 1 - j)) mod L)   for j = 1 .. arity - 1

The array of (C + arity - 1) * L slots has 1.125 (3-wise) or 1.075 (4-wise) slots per key for large sets. Lengths, hash,
seeds and order of the 3-wise filter are those of FastFilter's binaryfusefilter.h, so the same keys give the same bytes.
The 4-wise filter is the same construction with the lengths of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.hashing import (
    BLOCK,
    MAXIMUM_ATTEMPTS,
    SHIFT_18,
    SHIFT_32,
    Hashes,
    fingerprint,
    group_by_hash,
    hash_block,
    multiply_high,
    murmur64,
    seed_of_attempt,
)
from subbit.codecs.peeling import Fingerprints, Slots, peel_stack, solve
from subbit.core.errors import PayloadError
from subbit.core.jit import njit
from subbit.core.randomness import MASK_64

REFERENCE_COUNTER = 0x726B2B9D438B9D4D
"""First seed counter of the C header. Ours adds the shared key, so that key 0 gives the bytes of the header."""
MAXIMUM_SEGMENT_LENGTH = 1 << 18
SHIFT_36 = np.uint64(36)


@dataclass(frozen=True)
class FuseShape:
    """The lengths of a filter for `key_count` keys. Both sides derive them; none is read from the wire."""

    segment_length: int
    start_length: int
    """C * L: the number of slots in which a key can start."""
    slot_count: int


def fuse_shape(key_count: int, arity: int) -> FuseShape:
    # The logarithm of one key is 0, and we would divide by it. The header uses the smallest array in this case.
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
    """Return the index of the successful seed and the slots. `positions` must be distinct and at least one."""
    shape = fuse_shape(positions.size, arity)
    group_bits = np.uint64(max(1, (shape.start_length // shape.segment_length - 1).bit_length()))
    with np.errstate(over="ignore"):
        for attempt in range(MAXIMUM_ATTEMPTS):
            seed = seed_of_attempt(seed_counter(key), attempt)
            grouped = group_by_hash(positions, seed, np.uint32(0), group_bits)
            hashes, slots = _slots(grouped, seed, arity, np.uint64(shape.segment_length), np.uint64(shape.start_length))
            fingerprints = solve(slots, fingerprint(hashes).astype(dtype), shape.slot_count, peel_stack)
            if fingerprints is not None:
                return attempt, fingerprints
    raise PayloadError(f"no binary fuse filter of {positions.size} keys was found with any seed of key {key}")


def query_fuse(fingerprints: Fingerprints, seed: np.uint64, shape: FuseShape, arity: int, size: int) -> Bits:
    """Packed bits of the positions 0..size-1 that the filter contains."""
    out = np.empty((size + 7) // 8, np.uint8)
    kernel = _query_3 if arity == 3 else _query_4
    with np.errstate(over="ignore"):
        kernel(fingerprints, seed, np.uint64(shape.segment_length), np.uint64(shape.start_length), out)
    if size % 8:
        out[-1] &= np.uint8((1 << size % 8) - 1)
    return out


@njit
def _slots(
    positions: NDArray[np.uint32], seed: np.uint64, arity: int, segment_length: np.uint64, start_length: np.uint64
) -> tuple[Hashes, Slots]:
    hashes = np.empty(positions.size, np.uint64)
    slots = np.empty((positions.size, arity), np.uint32)
    mask = segment_length - np.uint64(1)
    for key in range(positions.size):
        hashed = murmur64(np.uint64(positions[key]) + seed)
        slot = multiply_high(hashed, start_length)
        hashes[key] = hashed
        slots[key, 0] = slot
        for way in range(1, arity):
            slot += segment_length
            slots[key, way] = slot ^ ((hashed >> (SHIFT_18 * np.uint64(arity - 1 - way))) & mask)
    return hashes, slots


@njit
def _query_3(
    fingerprints: Fingerprints,
    seed: np.uint64,
    segment_length: np.uint64,
    start_length: np.uint64,
    out: Bits,
) -> None:
    mask = segment_length - np.uint64(1)
    cut = fingerprints.dtype.type
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK // 8):
        hash_block(np.uint64(8 * block) + seed, start_length, hashes, starts)
        for byte in range(min(BLOCK // 8, out.size - block)):
            packed = np.uint64(0)
            for bit in range(8):
                hashed, slot_0 = hashes[8 * byte + bit], starts[8 * byte + bit]
                slot_1 = slot_0 + segment_length
                slot_2 = slot_1 + segment_length
                slot_1 ^= (hashed >> SHIFT_18) & mask
                slot_2 ^= hashed & mask
                # Not `fingerprint(hashed)`: a call is optimised less here, which costs a sixth of the time.
                rest = fingerprints[slot_0] ^ fingerprints[slot_1] ^ fingerprints[slot_2]
                rest ^= cut(hashed ^ (hashed >> SHIFT_32))
                packed |= np.uint64(rest == 0) << np.uint64(bit)
            out[block + byte] = packed


@njit
def _query_4(
    fingerprints: Fingerprints,
    seed: np.uint64,
    segment_length: np.uint64,
    start_length: np.uint64,
    out: Bits,
) -> None:
    mask = segment_length - np.uint64(1)
    cut = fingerprints.dtype.type
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK // 8):
        hash_block(np.uint64(8 * block) + seed, start_length, hashes, starts)
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
                rest = fingerprints[slot_0] ^ fingerprints[slot_1] ^ fingerprints[slot_2] ^ fingerprints[slot_3]
                rest ^= cut(hashed ^ (hashed >> SHIFT_32))
                packed |= np.uint64(rest == 0) << np.uint64(bit)
            out[block + byte] = packed
