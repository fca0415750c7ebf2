"""Kernels of `subbit.codecs.near`: the bits of positions near their threshold, written and read block by block.

Each context has a rate of flips. Both sides learn it from the same blocks, after which they have the same counters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.bit_rans import BIT_SHIFT, Entries, States, Stream, take_bit, with_word
from subbit.codecs.codec import Bits
from subbit.codecs.context import CONTEXTS
from subbit.codecs.near_places import BLOCK, FIRST_SHIFT, LOWER, SECOND_SHIFT, Tables, find_near, place_of
from subbit.codecs.rans import BITS_32, START
from subbit.codecs.sampler import Keys, Thresholds
from subbit.core.jit import njit

Zeros = NDArray[np.uint32]
"""The probability of a 0 in each context, in units of 2^-16."""
Tallies = NDArray[np.uint64]
"""Of each context: positions seen, and flips among them times 2^32. One sum is faster than two."""

BELIEF, MOST_FLIPS, MOST_PLACES = 4, 1 << 8, 1 << 15  # In positions of a context.
FIRST_BLOCKS = 16
RATE_BITS = 16
RATE_SHIFT, CERTAIN, LEAST = np.uint32(RATE_BITS), np.uint32(1 << RATE_BITS), np.uint32(1)
ZERO, ONE, THREE, SEVEN = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(7)
FLIP, LOW_32 = np.uint64(1 << 32), np.uint64((1 << 32) - 1)


@njit
def _learns(start: int) -> bool:
    """Rates are learnt from the first blocks and then from every second one, which is enough and takes less time."""
    return start < FIRST_BLOCKS * BLOCK or start % (2 * BLOCK) == 0


@njit
def _update_rates(tallies: Tallies, exponent: int, zero_of_context: Zeros) -> None:
    """The probability of a 0 in each context. What was seen long ago counts less."""
    belief = np.uint32(BELIEF << (RATE_BITS - exponent))
    for context in range(CONTEXTS):
        flips, places = np.uint32(tallies[context] >> BITS_32), np.uint32(tallies[context] & LOW_32)
        if flips > MOST_FLIPS or places > MOST_PLACES:
            flips, places = flips >> LEAST, places >> LEAST
            tallies[context] = (np.uint64(flips) << BITS_32) | np.uint64(places)
        flip = np.uint32(np.uint32(flips << RATE_SHIFT) + belief) // np.uint32(places + np.uint32(BELIEF))
        zero_of_context[context] = CERTAIN - min(max(flip, LEAST), CERTAIN - LEAST)


@njit
def plan_bits(
    thresholds: Thresholds, keys: Keys, cut: np.uint32, exponent: int, tables: Tables, bits: Bits, entries: Entries
) -> int:
    """List what is written, and take it out of the bits. Return how many entries there are."""
    pairs, flags = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint8)
    words, zeros = np.empty(BLOCK // 64, np.uint64), np.empty(CONTEXTS, np.uint32)
    tallies = np.zeros(CONTEXTS, np.uint64)
    packed, (logits, context_of_distance), written = words.view(np.uint8), tables, 0
    for start in range(0, thresholds.size, BLOCK):
        block, block_bits = thresholds[start : start + BLOCK], bits[start // 8 : (start + BLOCK) // 8]
        if _learns(start):
            _update_rates(tallies, exponent, zeros)
        find_near(block, np.uint32(start), keys, cut, pairs, flags, packed)
        for word in range(words.size):
            rest = words[word]
            while rest != ZERO:
                lowest = rest & (~rest + ONE)
                rest ^= lowest
                place = np.uint64(64 * word) + np.uint64(place_of(lowest))
                pair = pairs[place]
                distance = np.int32(logits[pair >> FIRST_SHIFT]) - np.int32(logits[(pair & LOWER) >> SECOND_SHIFT])
                context = context_of_distance[np.uint32(abs(distance))]
                one = np.uint32((block_bits[place >> THREE] >> np.uint8(place & SEVEN)) & np.uint8(1))
                entries[written] = zeros[context] | (one << BIT_SHIFT)
                written += 1
                if _learns(start):
                    tallies[context] += ONE + (np.uint64(one) << BITS_32)
        for byte in range(block_bits.size):
            block_bits[byte] &= ~packed[byte]
    return written


@njit
def read_bits(
    thresholds: Thresholds,
    keys: Keys,
    cut: np.uint32,
    exponent: int,
    tables: Tables,
    states: States,
    stream: Stream,
    available: int,
    bits: Bits,
) -> bool:
    """Add the flips near the threshold to the others. False if a sender would not have written this.

    All that is done for a position is in one loop: while a state waits for its multiplication, the next positions are
    found and looked up."""
    pairs, flags = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint8)
    words, zeros = np.empty(BLOCK // 64, np.uint64), np.empty(CONTEXTS, np.uint32)
    tallies = np.zeros(CONTEXTS, np.uint64)
    packed, (logits, context_of_distance) = words.view(np.uint8), tables
    first, second = states[0], states[1]
    read = ZERO
    for start in range(0, thresholds.size, BLOCK):
        block, block_bits = thresholds[start : start + BLOCK], bits[start // 8 : (start + BLOCK) // 8]
        learns = _learns(start)
        if learns:
            _update_rates(tallies, exponent, zeros)
        find_near(block, np.uint32(start), keys, cut, pairs, flags, packed)
        misplaced = np.uint8(0)
        for byte in range(block_bits.size):
            misplaced |= packed[byte] & block_bits[byte]
        for word in range(words.size):
            rest, found = words[word], ZERO
            while rest != ZERO:
                lowest = rest & (~rest + ONE)
                rest ^= lowest
                pair = pairs[np.uint64(64 * word) + np.uint64(place_of(lowest))]
                distance = np.int32(logits[pair >> FIRST_SHIFT]) - np.int32(logits[(pair & LOWER) >> SECOND_SHIFT])
                context = context_of_distance[np.uint32(abs(distance))]
                state, ones = take_bit(first, zeros[context])
                if state < START:
                    state = with_word(state, stream[read])
                    read += ONE
                first, second = second, state
                found |= lowest & ones
                if learns:
                    tallies[context] += ONE + (ones & FLIP)
            words[word] = found
        if misplaced != np.uint8(0) or np.int64(read) > available:
            return False
        for byte in range(block_bits.size):
            block_bits[byte] |= packed[byte]
    return bool(np.int64(read) == available and first == START and second == START)
