"""Binary range coder (Martin, "Range encoding", 1979): codes bits with one probability each, very close to -log2
P(bits).

The state is an interval [low, low + width) of 64-bit numbers. A bit splits it at (width >> 24) * zero, where zero /
2^24 is the probability of a 0; a 0 keeps the lower part, a 1 the upper. While width < 2^48 the top 16 bits of low are
written and both are shifted. If low overflows, the carry is added to the words already written.

The stream is the shortest byte string all of whose continuations, read as binary fractions, lie in the last interval.
The reader appends zeros to it. After the last bit the reader also knows the interval and checks the stream against it.
So there is exactly one stream for given bits, and extra bytes are always detected.

The probabilities come from a `Model`, which is called for chunks that start at a multiple of 64. It may use the bits
before the chunk, which the reader has already decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits
from subbit.codecs.packed import byte_count
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

Zeros = NDArray[np.uint32]
"""Probability of a 0 at each position in units of 2^-24, at least 1 and below 2^24."""
Model = Callable[[int, int, Bits], Zeros]
"""(first position, end position, bits, of which those before the first position are known) -> probabilities."""
Contexts = NDArray[np.uint8]
ContextModel = Callable[[int, int, Bits], tuple[Zeros, Contexts]]
"""As `Model`, for positions of few kinds: the probability of a 0 in each context, and the context of each position."""
State = NDArray[np.uint64]
Stream = NDArray[np.uint16]

PROBABILITY_BITS = 24
CERTAINTY = 1 << PROBABILITY_BITS
EVERYTHING = (1 << 64) - 1  # Width of the initial interval.
FIRST_CHUNK, LARGEST_CHUNK = 64, 1 << 14
LOW, WIDTH, DONE, AHEAD = 0, 1, 2, 3  # Indices into the state. DONE is the number of words written.
SHIFT_24, SHIFT_16, SHIFT_48 = np.uint64(PROBABILITY_BITS), np.uint64(16), np.uint64(48)
NARROW, FULL_WORD = np.uint64(1 << 48), np.uint16((1 << 16) - 1)
ZERO = np.uint64(0)


def encode_bits(bits: Bits, size: int, model: Model) -> bytes:
    state = np.array([0, EVERYTHING, 0, 0], dtype=np.uint64)
    stream = np.empty(2 * size, dtype=np.uint16)  # At most two words per bit.
    for start, stop in _chunks(size):
        with np.errstate(over="ignore"):
            _encode_chunk(bits, start, model(start, stop, bits), state, stream)
    words = stream[: int(state[DONE])]
    number, length = _last_bytes(int(state[LOW]), int(state[WIDTH]))
    if number >> 64:
        _carry(words, np.int64(words.size))
    return words.astype(">u2").tobytes() + (number % (1 << 64)).to_bytes(8, "big")[:length]


def decode_bits(data: bytes, size: int, model: Model) -> Bits:
    """Raise `PayloadError` for every byte string that `encode_bits` does not write for this size and model."""
    (words, state), bits = _open_stream(data), np.zeros(byte_count(size), dtype=np.uint8)
    with np.errstate(over="ignore"):
        for start, stop in _chunks(size):
            _decode_chunk(words, start, model(start, stop, bits), state, bits)
    _check_end(data, size, state)
    return bits


def decode_rare_bits(data: bytes, size: int, model: ContextModel) -> Bits:
    """As `decode_bits`, for a model of few contexts. Fast if few bits are ones."""
    (words, state), bits = _open_stream(data), np.zeros(byte_count(size), dtype=np.uint8)
    with np.errstate(over="ignore"):
        for start, stop in _chunks(size):
            _decode_rare_chunk(words, start, *model(start, stop, bits), state, bits)
    _check_end(data, size, state)
    return bits


def _open_stream(data: bytes) -> tuple[Stream, State]:
    words = np.frombuffer(data[8:] + bytes(len(data[8:]) % 2), dtype=">u2").astype(np.uint16)
    first = int.from_bytes(data[:8].ljust(8, b"\0"), "big")
    return words, np.array([0, EVERYTHING, 0, first], dtype=np.uint64)


def _check_end(data: bytes, size: int, state: State) -> None:
    first = int.from_bytes(data[:8].ljust(8, b"\0"), "big")
    number, length = _last_bytes(int(state[LOW]), int(state[WIDTH]))
    # A number outside of the initial interval would be outside of all later ones.
    in_form = first < EVERYTHING and int(state[LOW]) + int(state[AHEAD]) == number
    if not in_form or len(data) != 2 * int(state[DONE]) + length:
        raise PayloadError(f"the {len(data)} bytes are not the range code of {size} bits")


def _chunks(size: int) -> Iterator[tuple[int, int]]:
    """Short chunks first, so that an adaptive model has learnt something early."""
    start, length = 0, FIRST_CHUNK
    while start < size:
        yield start, min(start + length, size)
        start, length = start + length, min(2 * length, LARGEST_CHUNK)


def _last_bytes(low: int, width: int) -> tuple[int, int]:
    """(number, length): the first `length` bytes of `number`, followed by anything, lie in [low, low + width). A 65th
    bit of the number is a carry. As width >= 2^48, three bytes are always enough.
    """
    if width == EVERYTHING:  # No bit was coded.
        return 0, 0
    length, unit = 1, 1 << 56
    while True:
        number = -(-low // unit) * unit
        if number + unit <= low + width:
            return number, length
        length, unit = length + 1, unit >> 8


@njit
def _encode_chunk(bits: Bits, start: int, zeros: Zeros, state: State, stream: Stream) -> None:
    low, width, written = state[LOW], state[WIDTH], np.int64(state[DONE])
    for index in range(zeros.size):
        place = start + index
        # Width becomes (width >> 24) * zero for a 0 and width - (width >> 24) * zero for a 1. With a mask instead of a
        # branch a fair bit costs no more than a rare one, and the next bit depends on only one multiplication and one
        # addition.
        mask = ZERO - np.uint64((bits[place >> 3] >> np.uint8(place & 7)) & np.uint8(1))
        signed = (np.uint64(zeros[index]) ^ mask) - mask
        before = width
        width = (width & mask) + (width >> SHIFT_24) * signed
        below = (before - width) & mask
        low += below
        if low < below:
            _carry(stream, written)
        while width < NARROW:
            stream[written] = np.uint16(low >> SHIFT_48)
            written += np.int64(1)
            low <<= SHIFT_16
            width <<= SHIFT_16
    state[LOW], state[WIDTH], state[DONE] = low, width, np.uint64(written)


@njit
def _carry(stream: Stream, written: np.int64) -> None:
    place = written - np.int64(1)
    while stream[place] == FULL_WORD:
        stream[place] = np.uint16(0)
        place -= np.int64(1)
    stream[place] += np.uint16(1)


@njit
def _decode_chunk(stream: Stream, start: int, zeros: Zeros, state: State, bits: Bits) -> None:
    low, width, read, ahead = state[LOW], state[WIDTH], np.int64(state[DONE]), state[AHEAD]
    for base in range(0, zeros.size, 8):
        byte = ZERO
        for lane in range(min(8, zeros.size - base)):
            split = (width >> SHIFT_24) * np.uint64(zeros[base + lane])
            rest = width - split
            one = ahead >= split
            low += split if one else ZERO
            ahead = ahead - split if one else ahead
            width = rest if one else split
            byte |= np.uint64(one) << np.uint64(lane)
            while width < NARROW:
                word = ZERO
                if read < stream.size:
                    word = np.uint64(stream[read])
                read += np.int64(1)
                ahead = (ahead << SHIFT_16) | word
                low <<= SHIFT_16
                width <<= SHIFT_16
        bits[(start + base) >> 3] = np.uint8(byte)
    state[LOW], state[WIDTH], state[DONE], state[AHEAD] = low, width, np.uint64(read), ahead


@njit
def _decode_rare_chunk(
    stream: Stream, start: int, zero_of_context: Zeros, contexts: Contexts, state: State, bits: Bits
) -> None:
    """As `_decode_chunk`, with a branch: while it is predicted, the next bit waits for one multiplication only."""
    low, width, read, ahead = state[LOW], state[WIDTH], np.int64(state[DONE]), state[AHEAD]
    for index in range(contexts.size):
        split = (width >> SHIFT_24) * np.uint64(zero_of_context[contexts[index]])
        if ahead >= split:
            low += split
            ahead -= split
            width -= split
            place = start + index
            bits[place >> 3] |= np.uint8(1 << (place & 7))
        else:
            width = split
        while width < NARROW:
            word = ZERO
            if read < stream.size:
                word = np.uint64(stream[read])
            read += np.int64(1)
            ahead = (ahead << SHIFT_16) | word
            low <<= SHIFT_16
            width <<= SHIFT_16
    state[LOW], state[WIDTH], state[DONE], state[AHEAD] = low, width, np.uint64(read), ahead
