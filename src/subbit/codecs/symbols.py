"""Sequences over one small alphabet by rANS: the table of the alphabet, then the stream (`subbit.codecs.rans`).

    table = varint(symbols - 1), varint steps between ascending symbols, varint(frequency - 1) of all but the last

Frequencies add up to 2^16, so the last one is not sent. An alphabet that never occurs has no table. The cost of a
sequence is its entropy, two to four bytes for each symbol that occurs, and twelve bytes for the two states.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.rans import SCALE, Alphabet, Tables, Values, read_stream, write_stream
from subbit.codecs.varint import read_varint, write_varint


def encode_symbols(values: Values, symbol_count: int) -> bytes:
    """Encode values below `symbol_count`, at most 2^16. The receiver must know it and the number of values."""
    alphabet = fit_alphabet(np.bincount(values, minlength=symbol_count))
    everywhere = np.zeros(values.size, np.uint8)
    return write_table(alphabet) + write_stream(values, everywhere, Tables.of([alphabet]), symbol_count)


def decode_symbols(data: bytes, count: int, symbol_count: int) -> Values:
    """Decode exactly `count` values below `symbol_count` from exactly these bytes."""
    alphabet, offset = read_table(data, 0, count, symbol_count)
    return read_stream(data[offset:], np.zeros(count, np.uint8), Tables.of([alphabet]))


def fit_alphabet(occurrences: NDArray[np.int64]) -> Alphabet:
    """The symbols that occur, with proportional frequencies: at least 1 each, `SCALE` in total."""
    symbols = np.flatnonzero(occurrences).astype(np.int64)
    if not symbols.size:
        return symbols, symbols
    occurring = occurrences[symbols]
    frequencies: NDArray[np.int64] = 1 + occurring * (SCALE - symbols.size) // occurring.sum()
    frequencies[np.argmax(occurring)] += SCALE - frequencies.sum()
    return symbols, frequencies


def write_table(alphabet: Alphabet) -> bytes:
    symbols, frequencies = alphabet
    if not symbols.size:
        return b""
    numbers = [symbols.size - 1, int(symbols[0]), *(np.diff(symbols) - 1).tolist(), *(frequencies[:-1] - 1).tolist()]
    return b"".join(map(write_varint, numbers))


def read_table(data: bytes, offset: int, places: int, symbol_count: int) -> tuple[Alphabet, int]:
    """The alphabet for this number of positions, with symbols below `symbol_count`, and the offset after its table."""
    if not places:
        return (np.zeros(0, np.int64), np.zeros(0, np.int64)), offset
    last, offset = read_varint(data, offset, min(places, symbol_count) - 1, "number of symbols")
    symbol, symbols, frequencies = -1, [], []
    for _ in range(last + 1):
        step, offset = read_varint(data, offset, symbol_count - symbol - 2, "step between symbols")
        symbol += step + 1
        symbols.append(symbol)
    left = SCALE
    for index in range(last):
        frequency, offset = read_varint(data, offset, left - (last - index) - 1, "frequency of a symbol")
        frequencies.append(frequency + 1)
        left -= frequency + 1
    return (np.array(symbols), np.array([*frequencies, left])), offset
