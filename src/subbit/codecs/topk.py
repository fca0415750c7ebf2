"""Top-k: exactly ceil(fraction size) values of largest magnitude; of equal magnitudes the first.

On the wire: those values in order, then their positions as Golomb-Rice coded gaps (0.47 bits per value of the vector at
a fraction of 0.1, where 32-bit indices would take 3.2). The other values decode to zero.

Top-k is biased: values that are never among the largest are never sent. `with_error_feedback` (Stich, Cordonnier,
Jaggi, "Sparsified SGD with memory", NeurIPS 2018) adds what one round leaves out to the next. This residual is state of
the client, so the caller keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import VALUE_BYTES, check_value_format, check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.rice import Rice
from subbit.core.errors import ConfigError, PayloadError


@register_codec
@dataclass(frozen=True)
class TopK(Codec[Vector]):
    """A `fraction` of the values, in the format `values`: "float32", "float16" or "bfloat16"."""

    name = "topk"
    number = 53
    kind = Kind.VECTOR
    exact = False
    summary = "the largest values and where they are; fraction=0.1, values=float32"

    fraction: float = 0.1
    values: str = "float32"

    def __post_init__(self) -> None:
        check_value_format(self.values)
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction is {self.fraction}, it must be more than 0 and at most 1")

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        chosen = largest_places(vector, self.count(shared.size))
        places = np.packbits(chosen, bitorder="little")
        return values_to_bytes(vector[chosen], self.values) + Rice().encode(places, shared)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        count = self.count(shared.size)
        values_end = count * VALUE_BYTES[self.values]
        places: Bits = Rice().decode(data[values_end:], shared)
        chosen = np.unpackbits(places, count=shared.size, bitorder="little").view(np.bool_)
        if np.count_nonzero(chosen) != count:
            raise PayloadError(
                f"{np.count_nonzero(chosen)} places are listed, exactly {count} are needed", cause="value"
            )
        vector = np.zeros(shared.size, np.float32)
        vector[chosen] = values_from_bytes(data[:values_end], count, self.values, "the list of largest values")
        return vector

    def count(self, size: int) -> int:
        """ceil(fraction size), with the fraction read as a decimal: 0.07 of 100 values are 7, not 8."""
        return math.ceil(Fraction(str(self.fraction)) * size)


def largest_places(vector: Vector, count: int) -> NDArray[np.bool_]:
    """Mask of exactly `count` positions of largest magnitude; of equal magnitudes the first."""
    magnitudes = np.abs(vector)
    if count == 0:
        return np.zeros(vector.size, np.bool_)
    smallest = np.partition(magnitudes, vector.size - count)[vector.size - count]
    chosen: NDArray[np.bool_] = magnitudes > smallest
    ties = np.flatnonzero(magnitudes == smallest)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return chosen


def with_error_feedback(codec: Codec[Vector], vector: Vector, residual: Vector, shared: Shared) -> tuple[bytes, Vector]:
    """Return the bytes of vector + residual and what they lose of it: the residual of the next round."""
    corrected = vector + residual
    data = codec.encode(corrected, shared)
    return data, corrected - codec.decode(data, shared)
