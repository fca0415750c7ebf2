"""Whole multiples of a step, entropy-coded by how far the values of each row spread.

The error of every value is at most half a step, wherever it is; the bits go where the values are. A row of normal
values with standard deviation s takes about log2(4.1 s / step) bits a value, a row of zeros one byte, zero rows at the
end none. For vectors whose rows differ much in size, e.g. scaled eigenvectors, that is near the best there is (reverse
water-filling: Cover, Thomas, "Elements of information theory", 10.3.3).

On the wire: varint(rows up to the last that is not zero), one byte per row, rows that are too large for this as
float32, one rANS stream for all others (`subbit.codecs.rans`). The byte is 0 for a row of zeros, `RAW` for one in
float32, else 1 + k for the alphabet of spread 2^(k/2 - 2). Alphabets are fixed, so no table is sent: the symbol q has
weight

    (1 + (q / spread)^2 / 32)^-16

which is nearly normal, and made of products and quotients only, so that it is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_finite, check_length, check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.rans import SCALE, Alphabet, Tables, read_stream, write_stream
from subbit.codecs.symbols import fit_alphabet
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError

LARGEST = 2047
"""Steps. Rows with values beyond are sent as float32."""
SPREADS = 21
REACH = 8
"""An alphabet ends at this multiple of its spread: 1.5e-8 of the weight at 0."""
RAW = 255
Levels = NDArray[np.int64]


@register_codec
@dataclass(frozen=True)
class Steps(Codec[Vector]):
    """Every value is rounded to a multiple of `step`; `row` values share a spread."""

    name = "steps"
    number = 56
    kind = Kind.VECTOR
    exact = False
    summary = "multiples of a step, entropy-coded by the spread of each row; step=0.001, row=256"

    step: float = 0.001
    row: int = 256
    always: bool = field(default=False, repr=False)
    """If all values round to zero, send the row of the largest as float32. Affects only the sender, so it is not part
    of the name.
    """

    def __post_init__(self) -> None:
        if not 1e-30 <= self.step <= 1e30:
            raise ConfigError(f"step is {self.step}, needs a number above 0")
        if self.row < 1:
            raise ConfigError(f"row is {self.row}, a row has at least one value")

    def contractive(self) -> Steps:
        """Rounding to nearest never leads away, but a change of less than half a step would never arrive."""
        return replace(self, always=True)

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        levels = np.rint(vector.astype(np.float64) / self.step)
        if self.always and vector.any() and not levels.any():
            levels[np.argmax(np.abs(vector))] = LARGEST + 1  # So that its row is sent as it is.
        used = -(-int(np.max(np.flatnonzero(levels), initial=-1) + 1) // self.row)
        kinds = bytearray(used)
        raw: list[Vector] = []
        coded: list[Levels] = []
        for place in range(used):
            rows = slice(place * self.row, (place + 1) * self.row)
            kinds[place] = _kind(levels[rows])
            if kinds[place] == RAW:
                raw.append(vector[rows])
            elif kinds[place]:
                coded.append(levels[rows].astype(np.int64))
        header = write_varint(used) + bytes(kinds)
        if raw:
            header += values_to_bytes(np.concatenate(raw), "float32")
        if not coded:
            return header
        values = (np.concatenate(coded) + LARGEST).astype(np.uint16)
        spreads = np.array([kind - 1 for kind in kinds if kind not in (0, RAW)], np.uint8)
        alphabets = np.repeat(spreads, [each.size for each in coded])
        return header + write_stream(values, alphabets, _tables(), 2 * LARGEST + 1)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        rows = -(-shared.size // self.row)
        used, offset = read_varint(data, 0, rows, "number of rows")
        kinds = np.frombuffer(data[offset : offset + used], np.uint8)
        check_length(bytes(kinds), used, "the list of spreads")
        if used and not kinds[-1]:
            raise PayloadError("the last row is one of zeros, which is not sent", "value")
        if ((kinds > SPREADS) & (kinds != RAW)).any():
            raise PayloadError(f"a row of spread {kinds.max() - 1}, there are {SPREADS}", "value")
        offset += used
        lengths = np.full(used, self.row)
        lengths[rows - 1 :] = shared.size - (rows - 1) * self.row
        places = np.repeat(kinds, lengths)
        vector = np.zeros(shared.size, np.float32)
        raw, coded = np.flatnonzero(places == RAW), np.flatnonzero((places != RAW) & (places != 0))
        end = offset + 4 * raw.size
        vector[raw] = values_from_bytes(data[offset:end], raw.size, "float32", "rows of large values")
        if not coded.size:
            check_length(data[end:], 0, "what follows rows without a code")
            return vector
        levels = read_stream(data[end:], places[coded] - np.uint8(1), _tables()).astype(np.int64) - LARGEST
        vector[coded] = (levels * self.step).astype(np.float32)
        check_finite(vector, "the decoded vector")
        return vector


def _kind(levels: NDArray[np.float64]) -> int:
    """The byte of a row: the spread that takes the fewest bits."""
    magnitudes = np.abs(levels)
    largest = float(magnitudes.max())
    if not largest:
        return 0
    if largest > LARGEST:
        return RAW
    rough = 4 + round(float(np.log2(np.mean(np.square(magnitudes)))))
    first = next(spread for spread in range(SPREADS) if _reach(spread) >= largest)
    tried = range(first, max(first, min(rough + 2, SPREADS - 1)) + 1)
    whole = magnitudes.astype(np.int64)
    return 1 + min(tried, key=lambda spread: float(_bits(spread)[whole].sum()))


def _reach(spread: int) -> int:
    return min(LARGEST, int(np.ceil(REACH * _width(spread))))


def _width(spread: int) -> float:
    """2^(spread/2 - 2). A square root is correctly rounded everywhere."""
    return float(np.sqrt(2.0**spread)) / 4


@lru_cache(maxsize=SPREADS)
def _alphabet(spread: int) -> Alphabet:
    levels = np.arange(-_reach(spread), _reach(spread) + 1)
    weights = 1 / (1 + np.square(levels / _width(spread)) / 32)
    for _ in range(4):
        weights = weights * weights
    occurrences = np.zeros(2 * LARGEST + 1, np.int64)
    occurrences[levels + LARGEST] = np.maximum(np.floor(weights * 2.0**32), 1).astype(np.int64)
    return fit_alphabet(occurrences)


@lru_cache(maxsize=SPREADS)
def _bits(spread: int) -> NDArray[np.float64]:
    """Of the magnitudes 0, 1, ... up to the reach."""
    _, frequencies = _alphabet(spread)
    return np.log2(SCALE / frequencies[_reach(spread) :])


@lru_cache(maxsize=1)
def _tables() -> Tables:
    return Tables.of([_alphabet(spread) for spread in range(SPREADS)])
