"""A custom codec: the upper half of every float32. `subbit check examples/half_codec.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subbit import register
from subbit.codecs import Codec, Kind, Shared, Vector
from subbit.codecs.float_format import check_finite, check_length, check_vector


@register("codec", "half")
@dataclass(frozen=True)
class Half(Codec[Vector]):
    """Drops the lower 16 bits: the relative error is below 2^-7, and no value is too large."""

    number = 200  # 192 to 255 are reserved for third-party codecs.
    kind = Kind.VECTOR
    exact = False
    summary = "the upper 16 bits of each float32"

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        bits = check_vector(payload, shared).view(np.uint32)
        return (bits >> np.uint32(16)).astype("<u2").tobytes()

    def decode(self, data: bytes, shared: Shared) -> Vector:
        check_length(data, 2 * shared.size, "a payload of halves")
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
        check_finite(values, "a payload of halves")
        return values
