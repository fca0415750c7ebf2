"""Shared part of EDEN and DRIVE: rotate each block, quantise it, and send one scale that makes the estimate unbiased.

    y = R x,   c = Q(sqrt(n) y / |x|),   S = |x|^2 / <c, y>,   estimate = R' (S c)

This S makes the estimate unbiased. S = <c, y> / |c|^2 (`nearest`) gives the multiple of c that is nearest to y: the
unbiased estimate times cos^2 of the angle between c and y. Its error is sin^2 times |x|^2, so it is never farther from
x than zero is. For long blocks cos^2 is 1 / (1 + w), with w the squared error of the unbiased estimate. A fixed factor
would work for long blocks only, since the error of short ones has no bound.

On the wire: the scales of all blocks as float32, one bit plane of all levels per bit, and one more plane for the part
of each block that uses the finer quantiser. The receiver knows every length in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.float_format import check_finite, check_length, count_boundaries, values_from_bytes, values_to_bytes
from subbit.codecs.planes import pack_planes, plane_bytes, unpack_planes
from subbit.codecs.rotation import Signs, block_bounds, draw_signs, rotate_block, rotate_block_back
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

LARGEST_VALUE = 2.0**100
"""Larger values are rejected: the norm of a block and the decoded values must stay finite in float32."""

Cuts = NDArray[np.int64]


@dataclass(frozen=True)
class RotatedQuantiser:
    """The first `fraction` of each block is quantised to the `fine` centroids with bits + 1, the rest to `coarse` with
    bits.
    """

    bits: int
    fraction: float
    coarse: Vector
    fine: Vector
    nearest: bool = False

    def fixed_length(self, size: int) -> int:
        """Bytes on the wire of any vector of this size."""
        bounds = block_bounds(size)
        fine = sum(math.ceil(self.fraction * (end - start)) for start, end in bounds) if self.fraction else 0
        return 4 * len(bounds) + plane_bytes(size, self.bits) + plane_bytes(fine, 1)

    def encode(self, vector: Vector, key: int) -> bytes:
        largest = float(np.max(np.abs(vector), initial=0))
        if largest > LARGEST_VALUE:
            raise PayloadError(f"a value of magnitude {largest} is too large to rotate, at most 2^100", cause="value")
        cuts, is_fine = self._cuts(vector.size)
        scales, levels = np.zeros(len(cuts), np.float32), np.zeros(vector.size, np.uint8)
        with np.errstate(under="ignore"):
            signs = draw_signs(key, vector.size)
            _quantise(vector.copy(), signs, cuts, self.coarse, self.fine, self.nearest, scales, levels)
        extra = pack_planes(levels[is_fine], self.bits, 1) if self.fraction else b""
        return values_to_bytes(scales, "float32") + pack_planes(levels, 0, self.bits) + extra

    def decode(self, data: bytes, shared: Shared) -> Vector:
        cuts, is_fine = self._cuts(shared.size)
        fine_count = int(np.count_nonzero(is_fine))
        planes_start = 4 * len(cuts)
        extra_start = planes_start + plane_bytes(shared.size, self.bits)
        length = extra_start + plane_bytes(fine_count, 1 if self.fraction else 0)
        check_length(data, length, f"a rotated vector of {shared.size} values")
        scales = values_from_bytes(data[:planes_start], len(cuts), "float32", "the list of scales")
        if (scales < 0).any():
            raise PayloadError(f"a scale is negative: {scales.min()}", cause="value")
        levels = np.zeros(shared.size, np.uint8)
        unpack_planes(data[planes_start:extra_start], 0, self.bits, levels)
        if self.fraction:
            upper = np.zeros(fine_count, np.uint8)
            unpack_planes(data[extra_start:], self.bits, 1, upper)
            levels[is_fine] |= upper
        vector = np.zeros(shared.size, np.float32)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            _estimate(levels, draw_signs(shared.key, shared.size), cuts, self.coarse, self.fine, scales, vector)
        check_finite(vector, "the decoded vector")  # A scale near the float32 limit overflows in the rotation.
        return vector

    def _cuts(self, size: int) -> tuple[Cuts, NDArray[np.bool_]]:
        """Start, end of the finer part and end of each block; and a mask of all finer parts."""
        is_fine = np.zeros(size if self.fraction else 0, np.bool_)
        cuts = np.zeros((len(block_bounds(size)), 3), np.int64)
        for block, (start, end) in enumerate(block_bounds(size)):
            middle = start + math.ceil(self.fraction * (end - start))
            cuts[block] = start, middle, end
            is_fine[start:middle] = True
        return cuts, is_fine


@njit
def _quantise(
    rotated: Vector,
    signs: Signs,
    cuts: Cuts,
    coarse: Vector,
    fine: Vector,
    nearest: bool,
    scales: Vector,
    levels: NDArray[np.uint8],
) -> None:
    for block in range(cuts.shape[0]):
        start, middle, end = cuts[block]
        values = rotated[start:end]
        rotate_block(values, signs, start)
        energy = dot(values, values)
        if energy == 0.0:
            continue
        unit = np.float32(np.sqrt(values.size / energy))
        product, squares = _nearest(rotated[start:middle], unit, fine, levels[start:middle])
        more_product, more_squares = _nearest(rotated[middle:end], unit, coarse, levels[middle:end])
        product += more_product
        if product > 0.0:
            scales[block] = product / (squares + more_squares) if nearest else energy / product


@njit
def _nearest(values: Vector, unit: np.float32, centroids: Vector, levels: NDArray[np.uint8]) -> tuple[float, float]:
    """Write the level of the centroid nearest to each value * unit into `levels`, which must be zero; return
    <centroids, values> and |centroids|^2.
    """
    count_boundaries(values, (centroids[1:] + centroids[:-1]) * np.float32(0.5) / unit, levels)
    nearest = np.empty(values.size, np.float32)
    for place in range(values.size):
        nearest[place] = centroids[levels[place]]
    return dot(nearest, values), dot(nearest, nearest)


@njit
def dot(first: Vector, second: Vector) -> float:
    """Dot product in float64 with four partial sums: with a single one, each addition would wait for the one before."""
    sums = np.zeros(4)
    whole = first.size - first.size % 4
    for start in range(0, whole, 4):
        for lane in range(4):
            sums[lane] += np.float64(first[start + lane]) * np.float64(second[start + lane])
    for place in range(whole, first.size):
        sums[0] += np.float64(first[place]) * np.float64(second[place])
    return float((sums[0] + sums[1]) + (sums[2] + sums[3]))


@njit
def _estimate(
    levels: NDArray[np.uint8],
    signs: Signs,
    cuts: Cuts,
    coarse: Vector,
    fine: Vector,
    scales: Vector,
    vector: Vector,
) -> None:
    for block in range(cuts.shape[0]):
        start, middle, end = cuts[block]
        for place in range(start, middle):
            vector[place] = scales[block] * fine[levels[place]]
        for place in range(middle, end):
            vector[place] = scales[block] * coarse[levels[place]]
        rotate_block_back(vector[start:end], signs, start)
