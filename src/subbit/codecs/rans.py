"""Range asymmetric numeral system (Duda, "Asymmetric numeral systems", arXiv:1311.2540) for a few alphabets with fixed
frequencies. Reading takes a table lookup and a multiplication per symbol, where a range coder divides.

A state x >= 2^32 takes a symbol with frequency f of 2^16, whose slots begin at s, by

    write:  if x >= f 2^32: emit the low 16 bits of x, x >>= 16;   x = (x // f) 2^16 + x % f + s
    read:   symbol that owns slot = x % 2^16;   x = f (x >> 16) + slot - s;   if x < 2^32: x = x 2^16 + next word

Symbols are written from last to first, so that they are read forwards. Two states alternate, because each step depends
on the one before it. A stream consists of the writer's two final states (six bytes each) and the words in reading
order. It is valid if the reader ends with both states at 2^32, where the writer began, and no word is left. It is empty
if no alphabet has two symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import PayloadError
from subbit.core.jit import njit

Alphabet = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ascending symbols and their frequencies, which add up to `SCALE`; both empty for an alphabet that never occurs."""
Alphabets = NDArray[np.uint8]
"""The index of the alphabet at each position."""
Values = NDArray[np.uint16]

SCALE_BITS = 16
SCALE = 1 << SCALE_BITS
LEAST_COARSE_BITS = 10  # The tables of a dozen alphabets fit into the L1 cache.
STATE_BYTES = 6
BITS_16, BITS_32, LOW_16 = np.uint64(16), np.uint64(32), np.uint64(0xFFFF)
START = np.uint64(1 << 32)


@dataclass(frozen=True)
class Tables:
    """The symbols of all alphabets, concatenated."""

    symbols: NDArray[np.uint16]
    frequencies: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    """Alphabet k owns the symbols offsets[k] to offsets[k + 1] - 1."""

    @classmethod
    def of(cls, alphabets: Sequence[Alphabet]) -> Tables:
        starts = [np.cumsum(frequencies) - frequencies for _, frequencies in alphabets]
        return cls(
            np.concatenate([symbols for symbols, _ in alphabets]).astype(np.uint16),
            np.concatenate([frequencies for _, frequencies in alphabets]).astype(np.uint32),
            np.concatenate(starts).astype(np.uint32),
            np.cumsum([0] + [symbols.size for symbols, _ in alphabets]),
        )

    @property
    def leave_open(self) -> bool:
        """Whether some alphabet has at least two symbols, so that a stream is needed."""
        return bool((np.diff(self.offsets) > 1).any())

    def coarse(self) -> tuple[NDArray[np.uint16], int]:
        """For each alphabet and each slot of a coarser grid: the symbol that owns it, relative to the alphabet's first
        symbol; and the bits of the grid. The grid has at least as many slots as an alphabet has symbols, so searches
        are short.
        """
        largest = int(np.diff(self.offsets).max())
        bits = max(LEAST_COARSE_BITS, (largest - 1).bit_length())
        slots = np.arange(1 << bits) << (SCALE_BITS - bits)
        found = np.zeros((self.offsets.size - 1, slots.size), dtype=np.uint16)
        for alphabet, (begin, end) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            if end > begin:
                found[alphabet] = np.searchsorted(self.starts[begin:end], slots, side="right") - 1
        return found.reshape(-1), bits

    def entries(self, symbol_count: int) -> NDArray[np.uint32]:
        """Index of symbol s of alphabet k, at k * symbol_count + s."""
        places = np.zeros((self.offsets.size - 1) * symbol_count, dtype=np.uint32)
        alphabets = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        places[alphabets * symbol_count + self.symbols] = np.arange(self.symbols.size)
        return places


def write_stream(values: Values, alphabets: Alphabets, tables: Tables, symbol_count: int) -> bytes:
    """Encode values below `symbol_count`, each a symbol of the alphabet at its position."""
    if not tables.leave_open:
        return b""
    words = np.empty(values.size, dtype=np.uint16)
    entries = tables.entries(symbol_count)
    first, second, begin = _encode(values, alphabets, entries, symbol_count, tables.frequencies, tables.starts, words)
    states = int(first).to_bytes(STATE_BYTES, "little") + int(second).to_bytes(STATE_BYTES, "little")
    return states + words[int(begin) :].astype("<u2", copy=False).tobytes()


def read_stream(data: bytes, alphabets: Alphabets, tables: Tables) -> Values:
    """Decode one value per position from exactly these bytes."""
    if not tables.leave_open:
        if data:
            raise PayloadError(f"{len(data)} bytes follow tables that leave nothing open", "size")
        return tables.symbols[tables.offsets[alphabets]]
    if len(data) < 2 * STATE_BYTES or len(data) % 2:
        raise PayloadError(f"{len(data)} bytes are not two states and whole words", "truncated")
    states = [int.from_bytes(data[begin : begin + STATE_BYTES], "little") for begin in (0, STATE_BYTES)]
    if min(states) < 1 << 32:
        raise PayloadError("a state lies below 2^32", "value")
    words = np.frombuffer(data, dtype="<u2", offset=2 * STATE_BYTES).astype(np.uint16, copy=False)
    values = np.empty(alphabets.size, dtype=np.uint16)
    coarse, coarse_bits = tables.coarse()
    in_form = _decode(
        np.uint64(states[0]),
        np.uint64(states[1]),
        words,
        alphabets,
        coarse,
        np.uint64(coarse_bits),
        tables.offsets,
        tables.symbols,
        tables.frequencies,
        tables.starts,
        values,
    )
    if not in_form:
        raise PayloadError(f"the {len(data)} bytes are not the code of {alphabets.size} symbols")
    return values


@njit
def _encode(
    values: Values,
    alphabets: Alphabets,
    entries: NDArray[np.uint32],
    symbol_count: int,
    frequencies: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    words: NDArray[np.uint16],
) -> tuple[np.uint64, np.uint64, int]:
    first, second = START, START
    begin = words.size
    for place in range(values.size - 1, -1, -1):
        entry = entries[np.int64(alphabets[place]) * symbol_count + np.int64(values[place])]
        frequency = np.uint64(frequencies[entry])
        state = second
        if (state >> BITS_32) >= frequency:
            begin -= 1
            words[begin] = np.uint16(state & LOW_16)
            state >>= BITS_16
        quotient = state // frequency
        state = (quotient << BITS_16) + (state - quotient * frequency) + np.uint64(starts[entry])
        first, second = state, first
    return first, second, begin


@njit
def _decode(
    first: np.uint64,
    second: np.uint64,
    words: NDArray[np.uint16],
    alphabets: Alphabets,
    coarse: NDArray[np.uint16],
    coarse_bits: np.uint64,
    offsets: NDArray[np.int64],
    symbols: NDArray[np.uint16],
    frequencies: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    values: Values,
) -> bool:
    read = 0
    coarse_shift = BITS_16 - coarse_bits
    for place in range(values.size):
        state = first
        slot = state & LOW_16
        alphabet = np.uint64(alphabets[place])
        entry = offsets[alphabet] + np.int64(coarse[(alphabet << coarse_bits) + (slot >> coarse_shift)])
        above = slot - np.uint64(starts[entry])
        while above >= np.uint64(frequencies[entry]):
            above -= np.uint64(frequencies[entry])
            entry += np.int64(1)
        values[place] = symbols[entry]
        state = np.uint64(frequencies[entry]) * (state >> BITS_16) + above
        if state < START:
            if read == words.size:
                return False
            state = (state << BITS_16) | np.uint64(words[read])
            read += 1
        first, second = second, state
    return first == START and second == START and read == words.size
