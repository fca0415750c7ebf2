"""The lane filter: a 3-wise binary fuse filter of bytes that is queried for eight consecutive positions at once.

A reader that queries every position spends most of its time on hashes and scattered memory accesses. Here the eight
positions of a block b = position >> 3 share one hash h, which selects three 64-bit words and a rotation for each. Lane
j = position & 7 uses one byte of each rotated word:

    word_0 = floor(h * C * L / 2^64),  word_1 = (word_0 + L) ^ ((h >> 18) mod L),  word_2 = (word_0 + 2 L) ^ (h mod L)
    f ^ rotate(word_0, r_0) ^ rotate(word_1, r_1) ^ rotate(word_2, r_2)   has byte 0 in lane j  <=>  8 b + j is present

with L the number of words per segment, f eight bytes of fingerprints and r_0, r_1, r_2 multiples of 8 bits, all derived
from h. Because of the rotations a lane does not always meet the same lane, so over bytes this is the hypergraph of the
binary fuse filter: as many slots per key and the same 1/256 of false positives, with three loads for eight answers.

Blocks full of keys are the exception: their eight equations differ only in the rotations of other blocks, which needs a
few more slots. So each further attempt has 1/64 more slots, and its number tells the reader how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.fuse import fuse_shape, seed_counter
from subbit.codecs.hashing import (
    BLOCK,
    LOW_32,
    MAXIMUM_ATTEMPTS,
    SHIFT_18,
    SHIFT_32,
    Hashes,
    group_by_hash,
    hash_block,
    multiply_high,
    murmur64,
    seed_of_attempt,
)
from subbit.codecs.peeling import Fingerprints, Slots, peel_stack, solve
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

LANE_BITS = np.uint32(3)
SHIFT_3, LANES_MASK = np.uint64(3), np.uint64(7)
ROTATION_MASK, WORD_BITS = np.uint64(56), np.uint64(64)
# Shifts that move three hash bits, different ones for each word, to the bits of ROTATION_MASK.
ROTATION_0, ROTATION_1, ROTATION_2 = np.uint64(33), np.uint64(36), np.uint64(39)
FINGERPRINT_MULTIPLIER = np.uint64(0x9E3779B1)
LOW_BITS, HIGH_BITS = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)
SHIFT_7, SHIFT_14, SHIFT_28 = np.uint64(7), np.uint64(14), np.uint64(28)


@dataclass(frozen=True)
class LaneShape:
    segment_words: int
    start_words: int
    """Number of words in which a block can start."""
    slot_count: int
    """Total number of bytes."""


def lane_shape(key_count: int, attempt: int) -> LaneShape:
    fuse = fuse_shape(key_count, 3)
    segment_words = max(1, fuse.segment_length // 8)
    slots = fuse.slot_count * (MAXIMUM_ATTEMPTS + attempt) // MAXIMUM_ATTEMPTS
    starts = max(1, -(-slots // (8 * segment_words)) - 2)
    return LaneShape(segment_words, starts * segment_words, 8 * (starts + 2) * segment_words)


def lane_seed(key: int, attempt: int) -> np.uint64:
    return seed_of_attempt(seed_counter(key), attempt)


def build_lane(positions: NDArray[np.uint32], key: int) -> tuple[int, Fingerprints]:
    """Return the number of the successful attempt and the slots. `positions` must be distinct and at least one."""
    with np.errstate(over="ignore"):
        for attempt in range(MAXIMUM_ATTEMPTS):
            shape, seed = lane_shape(positions.size, attempt), lane_seed(key, attempt)
            group_bits = np.uint64(max(1, (shape.start_words // shape.segment_words - 1).bit_length()))
            grouped = group_by_hash(positions, seed, LANE_BITS, group_bits)
            wanted, slots = _slots(grouped, seed, np.uint64(shape.segment_words), np.uint64(shape.start_words))
            fingerprints = solve(slots, wanted, shape.slot_count, peel_stack)
            if fingerprints is not None:
                return attempt, fingerprints
    raise PayloadError(f"no lane filter of {positions.size} keys was found with any seed of key {key}")


def query_lane(fingerprints: Fingerprints, seed: np.uint64, shape: LaneShape, size: int) -> Bits:
    """Packed bits of the positions 0..size-1 that the filter contains."""
    words = fingerprints.view("<u8").astype(np.uint64, copy=False)
    out = np.empty((size + 7) // 8, np.uint8)
    with np.errstate(over="ignore"):
        _query(words, seed, np.uint64(shape.segment_words), np.uint64(shape.start_words), out)
    if size % 8:
        out[-1] &= np.uint8((1 << size % 8) - 1)
    return out


@njit
def _fingerprint_word(hashed: np.uint64) -> np.uint64:
    """Eight fingerprints. The product is 32 by 32 bits, which vector units support."""
    return ((hashed & LOW_32) * FINGERPRINT_MULTIPLIER) ^ ((hashed << SHIFT_32) | (hashed >> SHIFT_32))


@njit
def _slots(
    positions: NDArray[np.uint32], seed: np.uint64, segment_words: np.uint64, start_words: np.uint64
) -> tuple[NDArray[np.uint8], Slots]:
    wanted = np.empty(positions.size, np.uint8)
    slots = np.empty((positions.size, 3), np.uint32)
    mask = segment_words - np.uint64(1)
    for key in range(positions.size):
        lane = np.uint64(positions[key]) & LANES_MASK
        hashed = murmur64(np.uint64(positions[key] >> LANE_BITS) + seed)
        word_0 = multiply_high(hashed, start_words)
        word_1 = (word_0 + segment_words) ^ ((hashed >> SHIFT_18) & mask)
        word_2 = (word_0 + segment_words + segment_words) ^ (hashed & mask)
        slots[key, 0] = (word_0 << SHIFT_3) | ((lane + (hashed >> (ROTATION_0 + SHIFT_3))) & LANES_MASK)
        slots[key, 1] = (word_1 << SHIFT_3) | ((lane + (hashed >> (ROTATION_1 + SHIFT_3))) & LANES_MASK)
        slots[key, 2] = (word_2 << SHIFT_3) | ((lane + (hashed >> (ROTATION_2 + SHIFT_3))) & LANES_MASK)
        wanted[key] = (_fingerprint_word(hashed) >> (lane << SHIFT_3)) & np.uint64(255)
    return wanted, slots


@njit
def _rotate(word: np.uint64, bits: np.uint64) -> np.uint64:
    """Rotate right: byte j of the result is byte j + bits / 8 of the word. A shift by 64 would be undefined."""
    return (word >> bits) | (word << ((WORD_BITS - bits) & np.uint64(63)))


@njit
def _zero_bytes(word: np.uint64) -> np.uint64:
    """Bit j of the result (only the low eight bits count) is 1 if byte j of the word is 0."""
    # The sum carries into the upper bit of a byte unless its lower bits are all 0, and never into the next byte.
    zeros = (~(((word & LOW_BITS) + LOW_BITS) | word) & HIGH_BITS) >> SHIFT_7
    zeros |= zeros >> SHIFT_7
    zeros |= zeros >> SHIFT_14
    return zeros | (zeros >> SHIFT_28)


@njit
def _query(words: Hashes, seed: np.uint64, segment_words: np.uint64, start_words: np.uint64, out: Bits) -> None:
    """Separate loops for hashes, loads and answers, so that the first and the last are vectorised."""
    mask = segment_words - np.uint64(1)
    hashes, word_0 = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    word_1, word_2 = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for first in range(0, out.size, BLOCK):
        hash_block(np.uint64(first) + seed, start_words, hashes, word_0)
        for index in range(BLOCK):
            hashed, place_0 = hashes[index], word_0[index]
            place_1 = place_0 + segment_words
            place_2 = place_1 + segment_words
            word_0[index] = words[place_0]
            word_1[index] = words[place_1 ^ ((hashed >> SHIFT_18) & mask)]
            word_2[index] = words[place_2 ^ (hashed & mask)]
        for index in range(min(BLOCK, out.size - first)):
            hashed = hashes[index]
            difference = (
                _fingerprint_word(hashed)
                ^ _rotate(word_0[index], (hashed >> ROTATION_0) & ROTATION_MASK)
                ^ _rotate(word_1[index], (hashed >> ROTATION_1) & ROTATION_MASK)
                ^ _rotate(word_2[index], (hashed >> ROTATION_2) & ROTATION_MASK)
            )
            out[first + index] = _zero_bytes(difference) & np.uint64(255)
