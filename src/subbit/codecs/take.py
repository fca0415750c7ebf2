"""Looks up every value in a small table: counts and levels become thresholds or scores.

`table[values]` of numpy first converts all values to 64-bit indices, which takes most of its time and eight bytes per
value.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from subbit.core.jit import njit

FULL, LARGEST = 2.0**32, 2.0**32 - 1
Entry = TypeVar("Entry", bound=np.generic)


def take(table: NDArray[Entry], values: NDArray[np.uint16]) -> NDArray[Entry]:
    """table[value] of each value; the last entry for values beyond the table."""
    if not table.size:
        raise IndexError("a table without entries")
    out = np.empty(values.shape, table.dtype)
    _take(np.ascontiguousarray(table), values, out)
    return out


@njit
def _take(table: NDArray[Any], values: NDArray[np.uint16], out: NDArray[Any]) -> None:
    last = table.size - 1
    for place in range(values.size):
        value = int(values[place])
        out[place] = table[value if value < last else last]


def thresholds_of_theta(theta: NDArray[np.float32]) -> NDArray[np.uint32]:
    """floor(2^32 theta) within [0, 2^32 - 1]. A float32 times 2^32 is exact, so both sides have the same numbers."""
    out = np.empty(theta.shape, np.uint32)
    _scale(theta, out)
    return out


@njit
def _scale(theta: NDArray[np.float32], out: NDArray[np.uint32]) -> None:
    for place in range(theta.size):
        # By way of 64-bit integers, as x86 has no conversion to unsigned ones.
        scaled = min(max(np.float64(theta[place]) * FULL, 0.0), LARGEST)
        out[place] = np.uint32(np.int64(scaled))
