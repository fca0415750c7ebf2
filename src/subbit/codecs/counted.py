"""Entropy-coded counts (how many of `total` masks had a one at each position): the downlink of mask training.

Counts are coded alone, or against an earlier broadcast that the receiver still has. In the second case the frequencies
are those of the new value given the old one at the same position. The shorter form is sent.

    payload = varint(2 total + against) table... stream

Coded alone, there is one table (`subbit.codecs.symbols`). Against a reference there is one per value that occurs in it;
if there are many, values are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Counts, Kind, Shared, register_codec
from subbit.codecs.rans import SCALE, STATE_BYTES, Alphabets, Tables, Values, read_stream, write_stream
from subbit.codecs.symbols import fit_alphabet, read_table, write_table
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

MOST_ALPHABETS = 64
MOST_CELLS = 1 << 20
"""Limit for all histograms together: their memory must not grow with the total."""
LARGEST_TOTAL = 65535


@register_codec
@dataclass(frozen=True)
class CountsCodec(Codec[Counts]):
    """Entropy-coded counts, alone or against a reference that both sides have."""

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
        return best.header + write_stream(values, best.alphabets, best.tables, payload.total + 1)

    def decode(self, data: bytes, shared: Shared) -> Counts:
        header, offset = read_varint(data, 0, 2 * min(shared.limit, LARGEST_TOTAL) + 1, "total of the counts")
        total, against = header >> 1, bool(header & 1)
        if against and not _comparable(shared):
            raise PayloadError("the counts are coded against an earlier broadcast, which is not here", "value")
        alphabets, populations = _alphabets_of(shared, total, against)
        entries = []
        for population in populations.tolist():
            entry, offset = read_table(data, offset, population, total + 1)
            entries.append(entry)
        return Counts(total, read_stream(data[offset:], alphabets, Tables.of(entries)))


@dataclass(frozen=True)
class _Form:
    """One way to encode the counts."""

    header: bytes
    alphabets: Alphabets
    tables: Tables
    expected_bytes: float

    @classmethod
    def of(cls, values: Values, total: int, shared: Shared, against: bool) -> _Form:
        alphabets, populations = _alphabets_of(shared, total, against)
        histogram = np.zeros((populations.size, total + 1), dtype=np.int64)
        _count_symbols(values, alphabets, histogram)
        header = write_varint(2 * total + against)
        entries, bits = [], 0.0
        for occurrences in histogram:
            symbols, frequencies = fit_alphabet(occurrences)
            entries.append((symbols, frequencies))
            header += write_table((symbols, frequencies))
            bits -= float((occurrences[symbols] * np.log2(frequencies / SCALE)).sum())
        tables = Tables.of(entries)
        expected = len(header) + (2 * STATE_BYTES + bits / 8 if tables.leave_open else 0)
        return cls(header, alphabets, tables, expected)


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
    """The table of each position, and the number of positions of each table."""
    if not against or shared.reference is None:
        return np.zeros(shared.size, dtype=np.uint8), np.array([shared.size])
    old_values = shared.reference.total + 1
    count = min(old_values, MOST_ALPHABETS, max(MOST_CELLS // (total + 1), 1))
    merged = (np.arange(old_values) * count // old_values).astype(np.uint8)
    alphabets = np.empty(shared.size, dtype=np.uint8)
    populations = np.zeros(count, dtype=np.int64)
    _assign(shared.reference.values, merged, alphabets, populations)
    return alphabets, populations


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
