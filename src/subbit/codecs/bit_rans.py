"""Asymmetric numeral system for bits with one probability each (`subbit.codecs.rans` has it for larger alphabets).

The arithmetic is that of `rans`: a state x >= 2^32 holds bits whose probabilities are multiples of 2^-16, and two
states take turns. A stream consists of the writer's two final states (six bytes each) and the 16-bit words in reading
order. It is valid if the reader ends with both states at 2^32, where the writer began, and no word is left. So there is
exactly one stream for given bits and probabilities.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.rans import BITS_16, BITS_32, LOW_16, SCALE, START, STATE_BYTES
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

States = NDArray[np.uint64]
Stream = NDArray[np.uint16]
Entries = NDArray[np.uint32]
"""What is written: the probability of a 0 in units of 2^-16, at least 1 and below 2^16, and the bit times 2^16."""

LANES = 2
HEAD_BYTES = LANES * STATE_BYTES
BIT_SHIFT = 16
CERTAIN, ONE, ZERO, BITS_63 = np.uint64(SCALE), np.uint64(1), np.uint64(0), np.uint64(63)
SHIFT_TO_BIT = np.uint64(BIT_SHIFT)


def write_bit_stream(entries: Entries) -> bytes:
    states, words = np.full(LANES, START, dtype=np.uint64), np.empty(entries.size, dtype=np.uint16)
    begin = int(_write(entries, states, words))
    head = b"".join(int(state).to_bytes(STATE_BYTES, "little") for state in states)
    return head + words[begin:].astype("<u2", copy=False).tobytes()


def open_bit_stream(data: bytes, spare: int) -> tuple[States, Stream, int]:
    """(states, words, number of words). `spare` zeros follow the words: a reader may read that many bits before it has
    to look whether words are left."""
    if len(data) < HEAD_BYTES or len(data) % 2:
        raise PayloadError(f"{len(data)} bytes are not two states and whole words", "truncated")
    starts = range(0, HEAD_BYTES, STATE_BYTES)
    states = np.array([int.from_bytes(data[at : at + STATE_BYTES], "little") for at in starts], dtype=np.uint64)
    if int(states.min()) < START:
        raise PayloadError("a state lies below 2^32", "value")
    count = (len(data) - HEAD_BYTES) // 2
    words = np.zeros(count + spare, dtype=np.uint16)
    words[:count] = np.frombuffer(data, dtype="<u2", offset=HEAD_BYTES)
    return states, words, count


@njit
def _write(entries: Entries, states: States, words: Stream) -> int:
    """Return the index of the first word. Written from last to first, so that reading goes forwards."""
    begin = words.size
    for index in range(entries.size - 1, -1, -1):
        entry = np.uint64(entries[index])
        lane = index % LANES
        zero = entry & LOW_16
        one = entry >> SHIFT_TO_BIT != ZERO
        frequency = CERTAIN - zero if one else zero
        state = states[lane]
        if (state >> BITS_32) >= frequency:
            begin -= 1
            words[begin] = np.uint16(state & LOW_16)
            state >>= BITS_16
        quotient = state // frequency
        states[lane] = (quotient << BITS_16) + (state - quotient * frequency) + (zero if one else ZERO)
    return begin


@njit
def take_bit(state: np.uint64, probability: np.uint32) -> tuple[np.uint64, np.uint64]:
    """(state without it, bits that are all that bit). A state below 2^32 then needs a word.

    The sign of a difference instead of a comparison, of which the compiler would make a branch: one that cannot be
    predicted."""
    zero, slot = np.uint64(probability), state & LOW_16
    mask = ((slot - zero) >> BITS_63) - ONE
    product = zero * (state >> BITS_16)  # Does not wait for the bit. As x = 2^16 (x >> 16) + slot, it serves both.
    if_zero, if_one = product + slot, state - product - zero
    return if_zero ^ ((if_zero ^ if_one) & mask), mask


@njit
def with_word(state: np.uint64, word: np.uint16) -> np.uint64:
    return (state << BITS_16) | np.uint64(word)
