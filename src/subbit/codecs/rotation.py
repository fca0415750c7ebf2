"""Random rotation of a vector of any length, in blocks, without padding.

After a random rotation the coordinates of any vector look like draws from one normal distribution, so one quantiser
fits all vectors. The rotation is the randomised Walsh-Hadamard transform H D, with D a diagonal of random signs and H
the orthonormal Hadamard matrix, applied to blocks that fit the L1 cache:

- A vector is cut into blocks of BLOCK values. The remainder joins the last block, which holds up to 2 BLOCK - 1
  values. Padding to the next power of two would cost up to twice the time and twice the bits.
- A block of length m + r, where m is a power of two and r < m, is rotated by three orthonormal steps: H D on the first
  m values, H D on the last m, and butterflies (a + b, a - b) / sqrt(2) between the first r and the last r. For any r
  this spreads the energy of the block almost evenly. With r = 0 only the first step is needed.
- All of this is done twice with new signs. One round is not enough for sparse vectors: it turns (2, 1, 0, ..., 0)
  into values +-3 and +-1 whose signs do not depend on the smaller entry, a bias at every length. After two rounds no
  bias can be measured from 64 values up; below, there are too few sign patterns to remove it.

The signs are bits of the shared 32-bit hash. Additions and their order are fixed, so both sides compute the same
floats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Vector
from subbit.codecs.sampler import uniforms
from subbit.core.jit import njit

BLOCK = 8192
ROUNDS = 2
STREAMS = 2 * ROUNDS  # One stream of signs for each Hadamard step.
HALF_ROOT = np.float32(np.sqrt(0.5))
SIGN_PURPOSE = 0x526F746174696F6E

Signs = NDArray[np.uint32]


def block_count(size: int) -> int:
    """Number of blocks of a vector: at least one unless the vector is empty."""
    return max(1, size // BLOCK) if size else 0


def block_bounds(size: int) -> list[tuple[int, int]]:
    """Start and end of each block."""
    count = block_count(size)
    return [(block * BLOCK, size if block == count - 1 else (block + 1) * BLOCK) for block in range(count)]


def draw_signs(key: int, size: int) -> Signs:
    """One row of random bits for each Hadamard step, 32 signs per word."""
    words = (size + 31) // 32
    return uniforms(key ^ SIGN_PURPOSE, 0, STREAMS * words).reshape(STREAMS, words)


@njit
def rotate_block(values: Vector, signs: Signs, start: int) -> None:
    """Rotate in place. `start` is the offset of the block in its vector and selects its signs."""
    span = _largest_power_of_two(values.size)
    rest = values.size - span
    for stream in range(0, STREAMS, 2):
        _flip(values[:span], signs[stream], start)
        _hadamard(values[:span])
        if rest > 0:
            _flip(values[rest:], signs[stream + 1], start)
            _hadamard(values[rest:])
            _butterflies(values[:rest], values[span:])


@njit
def rotate_block_back(values: Vector, signs: Signs, start: int) -> None:
    """Inverse rotation: the same steps backwards. Each is its own transpose, except that the signs come after H."""
    span = _largest_power_of_two(values.size)
    rest = values.size - span
    for stream in range(STREAMS - 2, -1, -2):
        if rest > 0:
            _butterflies(values[:rest], values[span:])
            _hadamard(values[rest:])
            _flip(values[rest:], signs[stream + 1], start)
        _hadamard(values[:span])
        _flip(values[:span], signs[stream], start)


@njit
def _largest_power_of_two(size: int) -> int:
    power = 1
    while 2 * power <= size:
        power *= 2
    return power


@njit
def _flip(values: Vector, words: Signs, start: int) -> None:
    """Multiply by +-1 / sqrt(length): the signs and the normalisation of the Hadamard transform."""
    scale = np.float32(1.0 / np.sqrt(np.float64(values.size)))
    lanes = min(32, values.size)
    for group in range(0, values.size, lanes):
        word = words[(start + group) // 32]
        part = values[group : group + lanes]
        for lane in range(lanes):
            # Arithmetic, not a branch: half of the branches on a random bit would be mispredicted.
            sign = np.float32(1) - np.float32(2) * np.float32((word >> np.uint32(lane)) & np.uint32(1))
            part[lane] *= sign * scale


@njit
def _butterflies(first: Vector, second: Vector) -> None:
    for place in range(first.size):
        left, right = first[place] * HALF_ROOT, second[place] * HALF_ROOT
        first[place] = left + right
        second[place] = left - right


@njit
def _hadamard(values: Vector) -> None:
    """Unnormalised Hadamard transform in place. The length is a power of two.

    Does three levels at a time within a vector register, then two levels at a time. The slices tell LLVM that the four
    streams are contiguous, so that it vectorises them.
    """
    size = values.size
    step = 1
    if size >= 8:
        for start in range(0, size, 8):
            _hadamard_of_eight(values[start : start + 8])
        step = 8
    while 4 * step <= size:
        for start in range(0, size, 4 * step):
            first, second = values[start : start + step], values[start + step : start + 2 * step]
            third, fourth = values[start + 2 * step : start + 3 * step], values[start + 3 * step : start + 4 * step]
            for place in range(step):
                plus, minus = first[place] + second[place], first[place] - second[place]
                other_plus, other_minus = third[place] + fourth[place], third[place] - fourth[place]
                first[place], second[place] = plus + other_plus, minus + other_minus
                third[place], fourth[place] = plus - other_plus, minus - other_minus
        step *= 4
    while 2 * step <= size:
        for start in range(0, size, 2 * step):
            first, second = values[start : start + step], values[start + step : start + 2 * step]
            for place in range(step):
                plus, minus = first[place] + second[place], first[place] - second[place]
                first[place], second[place] = plus, minus
        step *= 2


@njit
def _hadamard_of_eight(values: Vector) -> None:
    a0, a1, a2, a3 = values[0] + values[1], values[0] - values[1], values[2] + values[3], values[2] - values[3]
    a4, a5, a6, a7 = values[4] + values[5], values[4] - values[5], values[6] + values[7], values[6] - values[7]
    b0, b1, b2, b3 = a0 + a2, a1 + a3, a0 - a2, a1 - a3
    b4, b5, b6, b7 = a4 + a6, a5 + a7, a4 - a6, a5 - a7
    values[0], values[1], values[2], values[3] = b0 + b4, b1 + b5, b2 + b6, b3 + b7
    values[4], values[5], values[6], values[7] = b0 - b4, b1 - b5, b2 - b6, b3 - b7
