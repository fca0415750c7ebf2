"""How many of `total` masks had a one at each place: the downlink of mask training, as entropy-coded integers.

Coded alone, or against an earlier broadcast that the receiver still has: then the frequencies are those of the new
value given the old one at the same place. The shorter of the two is sent.

    payload = varint(2 total + against) table... [stream]      the bracket only where some table has two symbols
    table   = varint(symbols - 1), varint steps between ascending symbols, varint(frequency - 1) of all but the last

There is one table alone; against a reference there is one for each value that occurs in it, values being merged where
there are many. A frequency is out of 2^16 and the last one is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.base import Codec, Counts, Kind, Shared, register_codec
from subbit.codecs.jit import njit
from subbit.codecs.rans import SCALE, STATE_BYTES, Alphabet, Alphabets, Tables, Values, decode_symbols, encode_symbols
from subbit.codecs.varint import read_varint, write_varint
from subbit.errors import PayloadError

MOST_ALPHABETS = 64
MOST_CELLS = 1 << 20
"""Of all histograms together: their memory must not grow with the total."""
LARGEST_TOTAL = 65535
EMPTY: Alphabet = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@register_codec
@dataclass(frozen=True)
class CountsCodec(Codec[Counts]):
    """Entropy-coded counts, alone or against the reference that both sides have."""

    name: ClassVar[str] = "counts"
    number: ClassVar[int] = 20
    kind: ClassVar[Kind] = Kind.COUNTS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "entropy-coded counts, alone or against an earlier broadcast"

    def encode(self, payload: Counts, shared: Shared) -> bytes:
        values = _checked_values(payload, shared)
        forms = [
            _Form.of(values, payload.total, shared, against) for against in (False, True)[: 1 + _comparable(shared)]
        ]
        best = min(forms, key=lambda form: form.expected_bytes)
        if not best.needs_stream:
            return best.header
        return best.header + encode_symbols(values, best.alphabets, best.tables, payload.total + 1)

    def decode(self, data: bytes, shared: Shared) -> Counts:
        header, offset = read_varint(data, 0, 2 * min(shared.limit, LARGEST_TOTAL) + 1, "total of the counts")
        total, against = header >> 1, bool(header & 1)
        if against and not _comparable(shared):
            raise PayloadError("the counts are coded against an earlier broadcast, which is not here", "value")
        alphabets, populations = _alphabets_of(shared, total, against)
        entries = []
        for population in populations.tolist():
            entry, offset = (
                _read_table(data, offset, min(total + 1, population), total) if population else (EMPTY, offset)
            )
            entries.append(entry)
        tables = Tables.of(entries)
        if max(symbols.size for symbols, _ in entries) > 1:
            return Counts(total, decode_symbols(data[offset:], alphabets, tables))
        if offset != len(data):
            raise PayloadError(f"{len(data) - offset} bytes follow tables that leave nothing open", "size")
        return Counts(total, tables.symbols[tables.offsets[alphabets]])


@dataclass(frozen=True)
class _Form:
    """One way to send some counts."""

    header: bytes
    alphabets: Alphabets
    tables: Tables
    needs_stream: bool
    expected_bytes: float

    @classmethod
    def of(cls, values: Values, total: int, shared: Shared, against: bool) -> _Form:
        alphabets, populations = _alphabets_of(shared, total, against)
        histogram = np.zeros((populations.size, total + 1), dtype=np.int64)
        _count_symbols(values, alphabets, histogram)
        header = write_varint(2 * total + against)
        entries, bits = [], 0.0
        for occurrences in histogram:
            symbols = np.flatnonzero(occurrences).astype(np.int64)
            frequencies = _frequencies(occurrences[symbols])
            entries.append((symbols, frequencies))
            header += _write_table(symbols, frequencies)
            bits -= float((occurrences[symbols] * np.log2(frequencies / SCALE)).sum())
        needs_stream = max(symbols.size for symbols, _ in entries) > 1
        expected = len(header) + (2 * STATE_BYTES + bits / 8 if needs_stream else 0)
        return cls(header, alphabets, Tables.of(entries), needs_stream, expected)


def _checked_values(counts: Counts, shared: Shared) -> Values:
    values = counts.values
    if values.dtype != np.uint16 or values.shape != (shared.size,):
        raise PayloadError(
            f"counts are {values.dtype} of shape {values.shape}, needed are {shared.size} uint16", "size"
        )
    if not 0 <= counts.total <= min(shared.limit, LARGEST_TOTAL):
        raise PayloadError(f"total of the counts is {counts.total}, the receiver takes 0 to {shared.limit}", "value")
    if values.size and int(values.max()) > counts.total:
        raise PayloadError(f"a count is {int(values.max())}, more than the total of {counts.total}", "value")
    return np.ascontiguousarray(values)


def _comparable(shared: Shared) -> bool:
    if shared.reference is not None:
        _checked_values(shared.reference, replace(shared, limit=LARGEST_TOTAL))
    return shared.reference is not None


def _alphabets_of(shared: Shared, total: int, against: bool) -> tuple[Alphabets, NDArray[np.int64]]:
    """Which table each place is coded with, and how many places each table has."""
    if not against or shared.reference is None:
        return np.zeros(shared.size, dtype=np.uint8), np.array([shared.size])
    old_values = shared.reference.total + 1
    count = min(old_values, MOST_ALPHABETS, max(MOST_CELLS // (total + 1), 1))
    merged = (np.arange(old_values) * count // old_values).astype(np.uint8)
    alphabets = np.empty(shared.size, dtype=np.uint8)
    populations = np.zeros(count, dtype=np.int64)
    _assign(shared.reference.values, merged, alphabets, populations)
    return alphabets, populations


def _frequencies(occurrences: NDArray[np.int64]) -> NDArray[np.int64]:
    """At least 1 each, in proportion to the occurrences, `SCALE` together."""
    if not occurrences.size:
        return occurrences
    frequencies: NDArray[np.int64] = 1 + occurrences * (SCALE - occurrences.size) // occurrences.sum()
    frequencies[np.argmax(occurrences)] += SCALE - frequencies.sum()
    return frequencies


def _write_table(symbols: NDArray[np.int64], frequencies: NDArray[np.int64]) -> bytes:
    if not symbols.size:
        return b""
    numbers = [symbols.size - 1, int(symbols[0]), *(np.diff(symbols) - 1).tolist(), *(frequencies[:-1] - 1).tolist()]
    return b"".join(map(write_varint, numbers))


def _read_table(data: bytes, offset: int, most_symbols: int, total: int) -> tuple[Alphabet, int]:
    last, offset = read_varint(data, offset, most_symbols - 1, "number of symbols")
    symbol, symbols, frequencies = -1, [], []
    for _ in range(last + 1):
        step, offset = read_varint(data, offset, total - symbol - 1, "step between symbols")
        symbol += step + 1
        symbols.append(symbol)
    left = SCALE
    for index in range(last):
        frequency, offset = read_varint(data, offset, left - (last - index) - 1, "frequency of a symbol")
        frequencies.append(frequency + 1)
        left -= frequency + 1
    return (np.array(symbols), np.array([*frequencies, left])), offset


@njit
def _assign(old: Values, merged: Alphabets, alphabets: Alphabets, populations: NDArray[np.int64]) -> None:
    for place in range(old.size):
        alphabet = merged[old[place]]
        alphabets[place] = alphabet
        populations[alphabet] += 1


@njit
def _count_symbols(values: Values, alphabets: Alphabets, histogram: NDArray[np.int64]) -> None:
    for place in range(values.size):
        histogram[alphabets[place], values[place]] += 1
