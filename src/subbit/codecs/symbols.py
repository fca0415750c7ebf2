"""A static entropy coder for small alphabets: rANS (Duda, "Asymmetric numeral systems", 2013).

One table of frequencies for the whole sequence, in units of 2^-16, goes first; then a state x between 2^32 and 2^48 and
the 16-bit words that the sender pushed out of it, last word first. With frequency f and cumulated frequency c of a
symbol:

    encode (backwards):   push out 16 bits if x >= f 2^32, then    x = (x // f) 2^16 + x % f + c
    decode:               x = f (x >> 16) + x % 2^16 - c,          then pull in 16 bits if x < 2^32

The cost is the entropy of the sequence, a table of about three bytes for each symbol that occurs, and six bytes. The
encoder starts from the state 2^32, so a decoder that does not end there, with every word used, has read something that
no encoder wrote.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.jit import njit
from subbit.codecs.varint import read_varint, write_varint
from subbit.errors import PayloadError

Symbols = NDArray[np.uint16]
Frequencies = NDArray[np.uint32]

TOTAL = 1 << 16
SHIFT, TWO_SHIFTS, LOW_BITS, START = np.uint64(16), np.uint64(32), np.uint64(0xFFFF), np.uint64(1 << 32)
STATE_WORDS = 3


def encode_symbols(symbols: Symbols, alphabet: int) -> bytes:
    """Any symbols below `alphabet`, which is at most 2^16. The receiver must know how many there are, and the
    alphabet."""
    if symbols.size == 0:
        return b""
    counts = np.bincount(symbols, minlength=alphabet)
    used = np.flatnonzero(counts)
    frequencies = np.zeros(alphabet, np.uint32)
    frequencies[used] = _scaled(counts[used])
    gaps = np.diff(used, prepend=-1) - 1
    table = write_varint(len(used) - 1) + b"".join(write_varint(int(gap)) for gap in gaps)
    table += frequencies[used[:-1]].astype("<u2").tobytes()  # The last one is what the others leave of 2^16.
    if len(used) == 1:
        return table
    words = np.empty(symbols.size + STATE_WORDS, np.uint16)
    with np.errstate(over="ignore"):
        count = _push(symbols, frequencies, _cumulated(frequencies), words)
    return table + words[:count][::-1].astype("<u2").tobytes()


def decode_symbols(data: bytes, count: int, alphabet: int) -> Symbols:
    """Exactly `count` symbols below `alphabet`, from exactly these bytes."""
    if count == 0:
        if data:
            raise PayloadError(f"{len(data)} bytes where there is no symbol", "size")
        return np.zeros(0, np.uint16)
    used, offset = _read_used(data, min(count, alphabet), alphabet)
    end = offset + 2 * (len(used) - 1)
    if len(data) < end or (len(data) - end) % 2:
        raise PayloadError("the bytes end inside the table of frequencies or inside a word", "truncated")
    frequencies = np.zeros(alphabet, np.uint32)
    frequencies[used[:-1]] = np.frombuffer(data, "<u2", len(used) - 1, offset)
    rest = TOTAL - int(frequencies.sum(dtype=np.int64))
    if rest < 1 or not frequencies[used[:-1]].all():
        raise PayloadError("a frequency of zero, or frequencies above one in total", "value")
    frequencies[used[-1]] = rest
    words = np.frombuffer(data, "<u2", offset=end).astype(np.uint16)
    if len(used) == 1:
        if words.size:
            raise PayloadError(f"{len(data) - end} bytes follow a sequence of one repeated symbol", "size")
        return np.full(count, used[0], np.uint16)
    symbols = np.empty(count, np.uint16)
    slots = np.repeat(np.arange(alphabet, dtype=np.uint16), frequencies)
    with np.errstate(over="ignore"):
        whole = (
            words.size >= STATE_WORDS
            and words[0] > 0
            and _pull(words, frequencies, _cumulated(frequencies), slots, symbols)
        )
    if not whole:
        raise PayloadError(f"not the code of {count} symbols: it ends too early, too late or in the wrong state")
    return symbols


def _read_used(data: bytes, most: int, alphabet: int) -> tuple[NDArray[np.int64], int]:
    """The symbols that occur, rising, and the offset behind them."""
    last, offset = read_varint(data, 0, most - 1, "number of used symbols")
    used = np.zeros(last + 1, np.int64)
    symbol = -1
    for place in range(last + 1):
        gap, offset = read_varint(data, offset, alphabet - symbol - 2, "gap between used symbols")
        symbol += gap + 1
        used[place] = symbol
    return used, offset


def _scaled(counts: NDArray[np.int64]) -> Frequencies:
    """Frequencies in proportion to the counts, each at least 1, together 2^16. What rounding leaves goes to the
    largest."""
    scaled: NDArray[np.int64] = np.maximum(1, counts * TOTAL // counts.sum())
    while (excess := int(scaled.sum()) - TOTAL) != 0:
        largest = int(np.argmax(scaled))
        scaled[largest] -= min(excess, int(scaled[largest]) // 2)  # A negative excess adds.
    return scaled.astype(np.uint32)


def _cumulated(frequencies: Frequencies) -> Frequencies:
    return np.append(0, np.cumsum(frequencies)[:-1]).astype(np.uint32)


@njit
def _push(symbols: Symbols, frequencies: Frequencies, cumulated: Frequencies, words: NDArray[np.uint16]) -> int:
    """Number of words, which is at most one for each symbol, and the state."""
    state = START
    count = 0
    for place in range(symbols.size - 1, -1, -1):
        frequency = np.uint64(frequencies[symbols[place]])
        if state >= frequency << TWO_SHIFTS:
            words[count] = np.uint16(state & LOW_BITS)
            count += 1
            state >>= SHIFT
        quotient = state // frequency
        state = (quotient << SHIFT) + (state - quotient * frequency) + np.uint64(cumulated[symbols[place]])
    for word in range(STATE_WORDS):
        words[count + word] = np.uint16(state & LOW_BITS)
        state >>= SHIFT
    return count + STATE_WORDS


@njit
def _pull(
    words: NDArray[np.uint16],
    frequencies: Frequencies,
    cumulated: Frequencies,
    slots: NDArray[np.uint16],
    symbols: Symbols,
) -> bool:
    """Whether the words are exactly the code of symbols.size symbols, which are written as they are found."""
    state = np.uint64(0)
    for word in range(STATE_WORDS):
        state = (state << SHIFT) | np.uint64(words[word])
    read = STATE_WORDS
    for place in range(symbols.size):
        slot = state & LOW_BITS
        symbol = slots[slot]
        symbols[place] = symbol
        state = np.uint64(frequencies[symbol]) * (state >> SHIFT) + slot - np.uint64(cumulated[symbol])
        if state < START:
            if read == words.size:
                return False
            state = (state << SHIFT) | np.uint64(words[read])
            read += 1
    return bool(state == START and read == words.size)
