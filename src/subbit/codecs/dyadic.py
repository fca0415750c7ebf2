"""Whole multiples of a power of two, exactly: for vectors that were rounded before, such as a fitted head.

The codec finds the largest power of two that divides all values, so sender and receiver agree on nothing but the size.
The multiples are entropy-coded as in `subbit.codecs.steps`. Where that takes more, a vector is sent as float32: a
byte more than `dense`.

On the wire: one byte, 0 for float32; else 1, the exponent as int16 (little-endian), and the multiples.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_finite, check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.steps import Steps
from subbit.core.errors import PayloadError

LARGEST = 1 << 24
"""Multiples up to this are exact in float32."""
LEAST_EXPONENT, MOST_EXPONENT = -149, 127
"""Of a float32 number."""
MULTIPLES = Steps(step=1.0)


@register_codec
@dataclass(frozen=True)
class Dyadic(Codec[Vector]):
    name = "dyadic"
    number = 57
    kind = Kind.VECTOR
    exact = True
    summary = "multiples of a power of two, exactly, entropy-coded; others as float32"

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        exponent = common_exponent(vector)
        multiples = np.ldexp(vector.astype(np.float64), -exponent)
        plain = b"\x00" + values_to_bytes(vector, "float32")
        if np.max(np.abs(multiples), initial=0) > LARGEST:
            return plain
        coded = b"\x01" + struct.pack("<h", exponent) + MULTIPLES.encode(multiples.astype(np.float32), shared)
        return min(coded, plain, key=len)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        if data[:1] == b"\x00":
            return values_from_bytes(data[1:], shared.size, "float32", "the values")
        if data[:1] != b"\x01" or len(data) < 3:
            raise PayloadError("the first byte is neither 0 nor 1, or the exponent is missing", "value")
        (exponent,) = struct.unpack_from("<h", data, 1)
        if not LEAST_EXPONENT <= exponent <= MOST_EXPONENT:
            raise PayloadError(f"a power of {exponent}, float32 has {LEAST_EXPONENT} to {MOST_EXPONENT}", "value")
        vector = np.ldexp(MULTIPLES.decode(data[3:], shared).astype(np.float64), exponent)
        if np.max(np.abs(vector), initial=0) > np.finfo(np.float32).max:
            raise PayloadError("a value beyond float32", "value")
        found: Vector = vector.astype(np.float32)
        check_finite(found, "the decoded vector")
        return found


def common_exponent(vector: Vector) -> int:
    """The exponent of the largest power of two of which all values are multiples; 0 if all are zero.

    >>> common_exponent(np.array([0.75, -2.0, 0.0], np.float32))
    -2
    """
    values = vector[vector != 0]
    if not values.size:
        return 0
    fractions, exponents = np.frexp(values.astype(np.float64))
    whole = np.abs(np.ldexp(fractions, 24)).astype(np.int64)  # float32 has 24 bits.
    zeros = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return int((exponents - 24 + zeros).min())
