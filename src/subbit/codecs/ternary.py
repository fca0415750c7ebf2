"""Sparse ternary values: positions, signs, and one magnitude for all.

Sattler, Wiedemann, Mueller, Samek: "Robust and communication-efficient federated learning from non-i.i.d. data" (sparse
ternary compression), IEEE TNNLS 2020.

    payload = empty for the zero vector, else
              magnitude (float32), varint(count), varint(bytes of signs), signs (`mask`), positions (`flips`)

With a `fraction`, that share of the values with the largest magnitudes is sent, all with the mean of their magnitudes.
Without it, all nonzero values are sent, which is exact for a vector that is already ternary because its sender has
selected the positions itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.packed import pack_bits, positions_of_bits, unpack_bits
from subbit.codecs.smallest import Flips, Mask
from subbit.codecs.topk import largest_places
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError

MAGNITUDE_BYTES = 4


@register_codec
@dataclass(frozen=True)
class Ternary(Codec[Vector]):
    """The largest `fraction` of the values, or all nonzero values."""

    name: ClassVar[str] = "ternary"
    number: ClassVar[int] = 55
    kind: ClassVar[Kind] = Kind.VECTOR
    exact: ClassVar[bool] = False
    summary: ClassVar[str] = "signs of the largest values and one magnitude; fraction=0.01, or all that are not zero"

    fraction: float | None = 0.01

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction is {self.fraction}, it must be more than 0 and at most 1, or none")

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        chosen = vector != 0
        if self.fraction is not None:
            chosen &= largest_places(vector, math.ceil(Fraction(str(self.fraction)) * shared.size))
        values = vector[chosen]
        if not values.size:
            return b""
        magnitude = np.float32(np.abs(values.astype(np.float64)).mean())
        if magnitude == 0:
            return b""  # The mean is too small for float32.
        signs = Mask().encode(pack_bits(values < 0), Shared(values.size))
        places = Flips().encode(pack_bits(chosen), Shared(shared.size))
        head = values_to_bytes(np.array([magnitude]), "float32")
        return head + write_varint(values.size) + write_varint(len(signs)) + signs + places

    def decode(self, data: bytes, shared: Shared) -> Vector:
        vector = np.zeros(shared.size, np.float32)
        if not data:
            return vector
        magnitude = values_from_bytes(data[:MAGNITUDE_BYTES], 1, "float32", "the magnitude")[0]
        if magnitude <= 0:
            raise PayloadError(f"the magnitude is {magnitude}, it must be above 0", "value")
        count, offset = read_varint(data, MAGNITUDE_BYTES, shared.size, "number of values")
        length, offset = read_varint(data, offset, len(data), "length of the signs")
        if length > len(data) - offset:
            raise PayloadError(f"the signs have {length} bytes, {len(data) - offset} are left", "truncated")
        negative = unpack_bits(Mask().decode(data[offset : offset + length], Shared(count)), count)
        chosen = positions_of_bits(Flips().decode(data[offset + length :], Shared(shared.size)), shared.size)
        if chosen.size != count or not count:
            raise PayloadError(f"{chosen.size} places are listed for {count} signs", "value")
        vector[chosen] = np.where(negative, -magnitude, magnitude)
        return vector
