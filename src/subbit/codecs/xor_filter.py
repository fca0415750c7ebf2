"""Xor filters (Graf & Lemire, "Xor Filters: Faster and Smaller Than Bloom and Cuckoo Filters", ACM JEA 2020).

A key is present if the XOR of its three slots, one in each third of the array, is its fingerprint. With h the 64-bit
hash, B the length of a third and rotl the rotation of h to the left,

    slot_j = j * B + floor((rotl(h, 21 j) mod 2^32) * B / 2^32)   for j = 0, 1, 2

There are 1.23 slots per key plus 32. Lengths, hash, seeds and order are those of FastFilter's xorfilter.h, so the same
keys give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.hashing import (
    LOW_32,
    MAXIMUM_ATTEMPTS,
    SHIFT_32,
    Hashes,
    fingerprint,
    murmur64,
    seed_of_attempt,
)
from subbit.codecs.peeling import Fingerprints, Slots, solve
from subbit.core.errors import PayloadError
from subbit.core.jit import njit
from subbit.core.randomness import MASK_64

REFERENCE_COUNTER = 1
"""First seed counter of the C header. Ours adds the shared key, so that key 0 gives the bytes of the header."""
SHIFT_21, SHIFT_22, SHIFT_42, SHIFT_43 = np.uint64(21), np.uint64(22), np.uint64(42), np.uint64(43)


def xor_block_length(key_count: int) -> int:
    return int(32 + 1.23 * key_count) // 3


def xor_seed(key: int, attempt: int) -> np.uint64:
    return seed_of_attempt((REFERENCE_COUNTER + key) & MASK_64, attempt)


def build_xor(positions: NDArray[np.uint32], key: int, dtype: np.dtype[Any]) -> tuple[int, Fingerprints]:
    """Return the index of the successful seed and the slots. `positions` must be distinct and at least one."""
    block_length = xor_block_length(positions.size)
    with np.errstate(over="ignore"):
        for attempt in range(MAXIMUM_ATTEMPTS):
            hashes, slots = _slots(positions, xor_seed(key, attempt), np.uint64(block_length))
            fingerprints = solve(slots, fingerprint(hashes).astype(dtype), 3 * block_length, _peel_three_stacks)
            if fingerprints is not None:
                return attempt, fingerprints
    raise PayloadError(f"no Xor filter of {positions.size} keys was found with any seed of key {key}")


def query_xor(fingerprints: Fingerprints, seed: np.uint64, size: int) -> Bits:
    """Packed bits of the positions 0..size-1 that the filter contains."""
    out = np.empty((size + 7) // 8, np.uint8)
    with np.errstate(over="ignore"):
        _query(fingerprints, seed, np.uint64(fingerprints.size // 3), out)
    if size % 8:
        out[-1] &= np.uint8((1 << size % 8) - 1)
    return out


@njit
def _three_slots(hashed: np.uint64, block_length: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    rotated_21 = ((hashed << SHIFT_21) | (hashed >> SHIFT_43)) & LOW_32
    rotated_42 = ((hashed << SHIFT_42) | (hashed >> SHIFT_22)) & LOW_32
    return (
        ((hashed & LOW_32) * block_length) >> SHIFT_32,
        ((rotated_21 * block_length) >> SHIFT_32) + block_length,
        ((rotated_42 * block_length) >> SHIFT_32) + block_length + block_length,
    )


@njit
def _slots(positions: NDArray[np.uint32], seed: np.uint64, block_length: np.uint64) -> tuple[Hashes, Slots]:
    hashes = np.empty(positions.size, np.uint64)
    slots = np.empty((positions.size, 3), np.uint32)
    for key in range(positions.size):
        hashes[key] = murmur64(np.uint64(positions[key]) + seed)
        slots[key, 0], slots[key, 1], slots[key, 2] = _three_slots(hashes[key], block_length)
    return hashes, slots


@njit
def _peel_three_stacks(slots: Slots, slot_count: int, order: NDArray[np.uint32], chosen: NDArray[np.uint32]) -> int:
    """Like `peel_stack`, in the order of xorfilter.h: one stack per third, emptied before the next third."""
    degree = np.zeros(slot_count, np.uint32)
    combined = np.zeros(slot_count, np.uint32)
    for key in range(slots.shape[0]):
        for way in range(3):
            degree[slots[key, way]] += np.uint32(1)
            combined[slots[key, way]] ^= np.uint32(key)
    block_length = slot_count // 3
    alone = np.empty((3, block_length + 1), np.uint32)
    waiting = np.zeros(3, np.int64)
    for index in range(slot_count):
        if degree[index] == 1:
            alone[index // block_length, waiting[index // block_length]] = index
            waiting[index // block_length] += 1
    peeled = 0
    while waiting[0] + waiting[1] + waiting[2] > 0:
        for stack in range(3):
            while waiting[stack] > 0:
                waiting[stack] -= 1
                slot = alone[stack, waiting[stack]]
                if degree[slot] != 1:
                    continue
                key = combined[slot]
                order[peeled] = key
                chosen[peeled] = slot
                peeled += 1
                for way in range(3):
                    other = slots[key, way]
                    degree[other] -= np.uint32(1)
                    combined[other] ^= key
                    alone[way, waiting[way]] = other
                    waiting[way] += degree[other] == 1
    return peeled


@njit
def _query(fingerprints: Fingerprints, seed: np.uint64, block_length: np.uint64, out: Bits) -> None:
    cut = fingerprints.dtype.type
    for byte in range(out.size):
        packed = np.uint64(0)
        for bit in range(8):
            hashed = murmur64(np.uint64(8 * byte + bit) + seed)
            slot_0, slot_1, slot_2 = _three_slots(hashed, block_length)
            rest = (
                fingerprints[slot_0] ^ fingerprints[slot_1] ^ fingerprints[slot_2] ^ cut(hashed ^ (hashed >> SHIFT_32))
            )
            packed |= np.uint64(rest == 0) << np.uint64(bit)
        out[byte] = packed
