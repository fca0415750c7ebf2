"""Checks for all VECTOR codecs, and the float formats in which values are sent.

Values that are not finite are never sent or accepted. The sender rejects them, so that a client whose loss became NaN
fails visibly. The receiver rejects them, so that one hostile client cannot turn an average into NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Shared, Vector
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes per value in each format."""


def check_vector(payload: NDArray[Any], shared: Shared) -> Vector:
    """Return the payload as contiguous float32; `PayloadError` if it is not `shared.size` finite float32 values."""
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
    """Little-endian bytes of finite values, rounded to nearest, ties to even. Rejects values that overflow."""
    if value_format == "float32":
        return np.asarray(values, dtype="<f4").tobytes()
    if value_format == "float16":
        with np.errstate(over="ignore"):
            halves = values.astype("<f2")
        overflow = np.isinf(halves)
        wire = halves.tobytes()
    else:
        # bfloat16 is the upper half of float32. Adding 0x7FFF, plus one if the upper half is odd, carries exactly if
        # the lower half is above the middle, or at the middle and the upper half is odd.
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
    """Inverse of `values_to_bytes`: exactly `count` finite values, as a new array."""
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

    Makes one vectorised pass per boundary over a chunk that fits the cache. A binary search per value has unpredictable
    branches and is slower up to a hundred boundaries.
    """
    piece = 4096
    for start in range(0, values.size, piece):
        some, counts = values[start : start + piece], levels[start : start + piece]
        for index in range(boundaries.size):
            boundary = boundaries[index]
            for place in range(some.size):
                counts[place] += np.uint8(some[place] >= boundary)
