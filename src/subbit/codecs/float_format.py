"""What every VECTOR codec checks, and the float formats in which a value can travel.

A value that is not finite never crosses the wire: the sender refuses it, so that a client whose loss became NaN fails
loudly, and the receiver refuses it, so that one hostile client cannot turn an average into NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Shared, Vector
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one value in each format."""


def check_vector(payload: NDArray[Any], shared: Shared) -> Vector:
    """The payload as contiguous float32, or a `PayloadError` if it is not `shared.size` finite float32 values."""
    if not isinstance(payload, np.ndarray) or payload.dtype != np.float32 or payload.shape != (shared.size,):
        found = f"{payload.dtype} {payload.shape}" if isinstance(payload, np.ndarray) else type(payload).__name__
        raise PayloadError(f"a vector payload is a float32 array of shape ({shared.size},), found {found}")
    check_finite(payload, "the vector to encode")
    return np.ascontiguousarray(payload)


def check_finite(values: NDArray[Any], what: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        place = int(np.argmin(finite))
        raise PayloadError(f"{what} holds {values[place]} at place {place}; every value must be finite", cause="value")


def check_length(data: bytes, expected: int, what: str) -> None:
    if len(data) != expected:
        cause = "truncated" if len(data) < expected else "size"
        raise PayloadError(f"{what} takes {expected} bytes, found {len(data)}", cause)


def check_value_format(name: str) -> None:
    if name not in VALUE_BYTES:
        raise ConfigError(f"unknown format of values {name!r}; there are: {', '.join(VALUE_BYTES)}")


def values_to_bytes(values: Vector, value_format: str) -> bytes:
    """Little-endian bytes of finite values, rounded to the nearest, ties to even. Refuses what overflows."""
    if value_format == "float32":
        return values.astype("<f4").tobytes()
    if value_format == "float16":
        with np.errstate(over="ignore"):
            halves = values.astype("<f2")
        overflow = np.isinf(halves)
        wire = halves.tobytes()
    else:
        # bfloat16 is the upper half of float32. Adding 0x7FFF, and one more if the half that stays is odd, carries
        # exactly when the lower half is above the middle, or at the middle with an odd neighbour.
        bits = values.view(np.uint32)
        upper = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2")
        overflow = (upper & 0x7FFF) == 0x7F80
        wire = upper.tobytes()
    if overflow.any():
        place = int(np.argmax(overflow))
        raise PayloadError(
            f"{values[place]} at place {place} is too large for {value_format}; use float32", cause="value"
        )
    return wire


def values_from_bytes(data: bytes, count: int, value_format: str, what: str) -> Vector:
    """Inverse of `values_to_bytes`: exactly `count` finite values, as an array of its own."""
    check_length(data, count * VALUE_BYTES[value_format], f"{what} of {count} {value_format} values")
    if value_format == "bfloat16":
        values = (np.frombuffer(data, dtype="<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = np.frombuffer(data, dtype="<f4" if value_format == "float32" else "<f2").astype(np.float32)
    check_finite(values, what)
    return values


@njit
def count_boundaries(values: Vector, boundaries: Vector, levels: NDArray[np.uint8]) -> None:
    """levels[i] += number of boundaries at or below values[i].

    One vectorised pass over a piece in the cache for each boundary: a bisection for each value has branches that nobody
    can predict and is slower up to a hundred boundaries.
    """
    piece = 4096
    for start in range(0, values.size, piece):
        some, counts = values[start : start + piece], levels[start : start + piece]
        for index in range(boundaries.size):
            boundary = boundaries[index]
            for place in range(some.size):
                counts[place] += np.uint8(some[place] >= boundary)
