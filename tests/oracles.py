"""What only tests need of codecs and models: plain forms to compare kernels with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Vector
from subbit.codecs.rotation import block_bounds, draw_signs, rotate_block, rotate_block_back
from subbit.codecs.sampler import (
    MULTIPLIER_1,
    MULTIPLIER_2,
    MULTIPLIER_3,
    SHIFT_14,
    SHIFT_15,
    SHIFT_16,
    subkeys,
)


def uniforms_numpy(key: int, start: int, count: int) -> NDArray[np.uint32]:
    """The same numbers from array operations alone: the oracle of the kernels."""
    first, second, third = subkeys(key)
    x = np.arange(start, start + count, dtype=np.uint32) ^ first
    x = (x ^ (x >> SHIFT_16)) * MULTIPLIER_1 + second
    x = (x ^ (x >> SHIFT_15)) * MULTIPLIER_2 ^ third
    x = (x ^ (x >> SHIFT_14)) * MULTIPLIER_3
    return x ^ (x >> SHIFT_15)


def rotate(vector: Vector, key: int) -> Vector:
    """The rotated vector: same length, same norm."""
    rotated, signs = vector.copy(), draw_signs(key, vector.size)
    for start, end in block_bounds(vector.size):
        rotate_block(rotated[start:end], signs, start)
    return rotated


def rotate_back(rotated: Vector, key: int) -> Vector:
    """Inverse of `rotate`, up to rounding."""
    vector, signs = rotated.copy(), draw_signs(key, rotated.size)
    for start, end in block_bounds(rotated.size):
        rotate_block_back(vector[start:end], signs, start)
    return vector
