"""Trellis-coded quantisation: as EDEN, rotation and one unbiased scale, but values are quantised together.

For each block x of length n (see `subbit.codecs.rotation`):

    y = R x                                  random rotation, known to both sides
    c = the path of a trellis nearest to a sqrt(n) y / |x|      a^2 = 1 - 4^-bits
    S = |x|^2 / <c, y>                       one float32
    estimate = R' (S c)

A quantiser that looks at one value at a time loses w = 0.571 |x|^2 at one bit, and pi / (2 bits) - 1 below, for it can
only leave values out there. No code can do better than 1 / (4^bits - 1): 1/3 at one bit, 1 at half a bit. A path
through a trellis of 2^memory states comes near to it at any rate: every bit decides over the next `memory` steps. The
sender finds the nearest path by dynamic programming (Viterbi, Omura, "Trellis encoding of memoryless discrete-time
sources with a fidelity criterion", 1974; Marcellin, Fischer, "Trellis coded quantization", 1990); the receiver reads
bits and looks values up. Those of the states are quantiles of the normal distribution in a shuffled order, as in QTIP
(Tseng, Sun, Hou, De Sa, NeurIPS 2024), which quantises weights this way.

    squared error w    bits = 1/4    1/2     1       2
    EDEN                   5.28     2.14    0.571   0.133
    memory = 8             2.94     1.24    0.43    0.096
    memory = 12            2.68     1.11    0.38    0.080
    bound                  2.41     1       0.333   0.067

The time of the sender doubles with every bit of memory: up to one bit a value about 0.05 microseconds a value at 8, 0.5
at 12, and ten times as much above. The receiver takes a few nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_finite, check_length, check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.rotated import LARGEST_VALUE, dot
from subbit.codecs.rotation import block_bounds, draw_signs, rotate_block, rotate_block_back
from subbit.codecs.sampler import uniforms
from subbit.codecs.trellis_search import nearest_path, values_of_path
from subbit.core.errors import ConfigError, PayloadError

LEAST_BITS, MOST_BITS = 1 / 64, 4
MEMORY = range(MOST_BITS, 17)
GRID = 2.0**16
TABLE_KEY, ORDER_KEY = 0x7472656C6C6973, 0x6F72646572


@register_codec
@dataclass(frozen=True)
class Trellis(Codec[Vector]):
    """`bits` per value, from 1/64 to 4, fractions allowed; the sender compares 2^memory paths."""

    name = "trellis"
    number = 58
    kind = Kind.VECTOR
    exact = False
    summary = "rotation and trellis code, unbiased, near the bound; bits=0.02 ... 4 a value"
    most_bits = MOST_BITS

    bits: float = 1.0
    memory: int = 10
    """The sender compares 2^memory paths: with more the error is smaller and encoding takes longer."""
    nearest: bool = field(default=False, repr=False)
    """Use the scale with the smallest error, which is biased. Affects only the sender, so it is not part of the name.
    """

    def __post_init__(self) -> None:
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            raise ConfigError(f"bits is {self.bits}, trellis takes 1/64 to {MOST_BITS}")
        if self.memory not in MEMORY:
            raise ConfigError(f"memory is {self.memory}, trellis takes {MEMORY[0]} to {MEMORY[-1]}")

    def contractive(self) -> Trellis:
        """As for EDEN: below half a bit the error of the unbiased estimate is more than |x|^2."""
        return replace(self, nearest=True)

    def fixed_length(self, size: int) -> int:
        return sum(4 + (self._bits_of(end - start) + 7) // 8 for start, end in block_bounds(size))

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        largest = float(np.max(np.abs(vector), initial=0))
        if largest > LARGEST_VALUE:
            raise PayloadError(f"a value of magnitude {largest} is too large to rotate, at most 2^100", cause="value")
        signs, table = draw_signs(shared.key, vector.size), normal_table(self.memory)
        scales, paths = [], []
        for start, end in block_bounds(vector.size):
            values = vector[start:end].copy()
            with np.errstate(under="ignore"):
                rotate_block(values, signs, start)
            scale, path = self._quantise(values, table)
            scales.append(scale)
            paths.append(path)
        return values_to_bytes(np.array(scales, np.float32), "float32") + b"".join(paths)

    def _quantise(self, values: Vector, table: Vector) -> tuple[float, bytes]:
        count = self._bits_of(values.size)
        values = values[mixed_order(values.size)]
        path = np.zeros((count + 7) // 8, np.uint8)
        energy = dot(values, values)
        if energy == 0.0:
            return 0.0, path.tobytes()
        unit = (values.astype(np.float64) * math.sqrt(values.size / energy)).astype(np.float32)
        nearest_path(unit, count, table, np.float32(math.sqrt(1 - 4.0**-self.bits)), path)
        chosen = np.empty_like(values)
        values_of_path(path, count, table, chosen)
        product = dot(chosen, values)
        if product <= 0.0:
            return 0.0, path.tobytes()
        squares = dot(chosen, chosen)
        return product / squares if self.nearest else energy / product, path.tobytes()

    def decode(self, data: bytes, shared: Shared) -> Vector:
        check_length(data, self.fixed_length(shared.size), f"a trellis-coded vector of {shared.size} values")
        bounds = block_bounds(shared.size)
        scales = values_from_bytes(data[: 4 * len(bounds)], len(bounds), "float32", "the list of scales")
        if (scales < 0).any():
            raise PayloadError(f"a scale is negative: {scales.min()}", cause="value")
        signs, table = draw_signs(shared.key, shared.size), normal_table(self.memory)
        vector, first = np.zeros(shared.size, np.float32), 4 * len(bounds)
        for (start, end), scale in zip(bounds, scales, strict=True):
            count = self._bits_of(end - start)
            path = np.frombuffer(data, np.uint8, (count + 7) // 8, first)
            first += path.size
            if count % 8 and path[-1] >> (count % 8):
                raise PayloadError("the padding after the last bit is not zero")
            chosen = np.empty(end - start, np.float32)
            values_of_path(path, count, table, chosen)
            values = vector[start:end]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                values[mixed_order(values.size)] = chosen * scale
                rotate_block_back(values, signs, start)
        check_finite(vector, "the decoded vector")
        return vector

    def _bits_of(self, size: int) -> int:
        """Of a block: at least one, unless it is empty."""
        return max(1, math.floor(self.bits * size + 0.5)) if size else 0


@lru_cache(maxsize=64)
def mixed_order(size: int) -> NDArray[np.int64]:
    """In which the values of a rotated block follow each other. A large value of x gives similar values at places that
    differ in one bit; next to each other on a path, these would bias the estimate."""
    order: NDArray[np.int64] = np.argsort(uniforms(ORDER_KEY, 0, size), kind="stable")
    return order


@lru_cache(maxsize=len(MEMORY))
def normal_table(memory: int) -> Vector:
    """Quantiles of the standard normal distribution, of variance 1, in a shuffled order.

    Multiples of 2^-16, so that last-bit differences between machines do not change the bytes.
    """
    count, normal = 1 << memory, NormalDist()
    quantiles = np.array([normal.inv_cdf((place + 0.5) / count) for place in range(count)])
    quantiles /= np.sqrt(np.mean(quantiles**2))
    order = np.argsort(uniforms(TABLE_KEY, 0, count), kind="stable")
    table: Vector = (np.round(quantiles * GRID) / GRID).astype(np.float32)[order]
    table.flags.writeable = False
    return table
