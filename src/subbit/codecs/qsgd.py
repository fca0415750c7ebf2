"""QSGD: stochastic rounding to a few levels of the norm, entropy-coded.

Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NIPS 2017. With s levels, each value x of a bucket of norm |v| becomes

    sign(x) |v| l / s,    l = floor(s |x| / |v| + u),    u uniform in [0, 1)

which is unbiased. With s = sqrt(bucket) the levels of a normal vector are one standard deviation apart: normalised
squared error 1/6 at 2.1 bits per value. The draws come from the shared key, so equal keys give equal bytes, and each
sender needs its own key for the errors to average out. On the wire: the norm of each bucket, rounded up to float32,
then the signed levels by rANS, where the paper only gives a bound for Elias codes.

With few levels the error is large: up to sqrt(n) / s times |v|^2 for a bucket of n values. `contractive` replaces the
norm by the scale with which the same levels are nearest to v: s <l, v> / |l|^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.rans import Values
from subbit.codecs.sampler import uniforms
from subbit.codecs.symbols import decode_symbols, encode_symbols
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

MOST_LEVELS = 32767
ROUNDING_PURPOSE = 0x51534744526F756E


@register_codec
@dataclass(frozen=True)
class Qsgd(Codec[Vector]):
    """`levels` above zero, or "sqrt" for the square root of the bucket's length; `bucket` values share a norm."""

    name = "qsgd"
    number = 52
    kind = Kind.VECTOR
    exact = False
    summary = "stochastic rounding to levels of the norm, unbiased, entropy-coded; levels=2 or sqrt"

    levels: int | str = "sqrt"
    bucket: int = 8192
    nearest: bool = field(default=False, repr=False)
    """Use the scale with the smallest error, which is biased. Affects only the sender, so it is not part of the name.
    """

    def __post_init__(self) -> None:
        if self.levels != "sqrt" and not (isinstance(self.levels, int) and 1 <= self.levels <= MOST_LEVELS):
            raise ConfigError(f'levels is {self.levels!r}, QSGD takes 1 to {MOST_LEVELS} or "sqrt"')
        if self.bucket < 1:
            raise ConfigError(f"bucket is {self.bucket}, a bucket has at least one value")

    def contractive(self) -> Qsgd:
        return replace(self, nearest=True)

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        exact_norms = np.zeros(self._buckets(shared.size))
        _norms(vector, self.bucket, exact_norms)
        # Rounded up, so that no value exceeds the norm of its bucket and every level is at most s.
        with np.errstate(over="ignore"):
            norms = exact_norms.astype(np.float32)
        norms = np.where(norms < exact_norms, np.nextafter(norms, np.float32(np.inf)), norms)
        if np.isinf(norms).any():
            raise PayloadError(f"a bucket has a norm of {exact_norms.max()}, too large for float32", cause="value")
        symbols = np.empty(shared.size, np.uint16)
        draws = uniforms(shared.key ^ ROUNDING_PURPOSE, 0, shared.size)
        levels = self._level_count(shared.size)
        _round(vector, draws, self.bucket, norms, levels, symbols)
        if self.nearest:
            _nearest_scales(vector, symbols, self.bucket, levels, norms)
        return values_to_bytes(norms, "float32") + encode_symbols(symbols, 2 * levels + 1)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        end, levels = 4 * self._buckets(shared.size), self._level_count(shared.size)
        norms = values_from_bytes(data[:end], self._buckets(shared.size), "float32", "the list of norms")
        if (norms < 0).any():
            raise PayloadError(f"a norm is negative: {norms.min()}", cause="value")
        symbols = decode_symbols(data[end:], shared.size, 2 * levels + 1)
        vector = np.empty(shared.size, np.float32)
        _scale(symbols, self.bucket, norms, levels, vector)
        return vector

    def _buckets(self, size: int) -> int:
        return -(-size // self.bucket)

    def _level_count(self, size: int) -> int:
        if isinstance(self.levels, int):
            return self.levels
        return min(max(1, math.isqrt(min(self.bucket, size))), MOST_LEVELS)


@njit
def _norms(vector: Vector, bucket: int, norms: NDArray[np.float64]) -> None:
    for index in range(norms.size):
        total = 0.0
        for value in vector[index * bucket : (index + 1) * bucket]:
            total += np.float64(value) * np.float64(value)
        norms[index] = np.sqrt(total)


@njit
def _round(vector: Vector, draws: NDArray[np.uint32], bucket: int, norms: Vector, levels: int, symbols: Values) -> None:
    for index in range(norms.size):
        scale = levels / np.float64(norms[index]) if norms[index] > 0 else 0.0
        for place in range(index * bucket, min((index + 1) * bucket, vector.size)):
            position = np.abs(np.float64(vector[place])) * scale + np.float64(draws[place]) * 2.0**-32
            level = min(int(position), levels)
            symbols[place] = np.uint16(levels + level if vector[place] >= 0 else levels - level)


@njit
def _nearest_scales(vector: Vector, symbols: Values, bucket: int, levels: int, norms: Vector) -> None:
    """Replace each norm by s <l, v> / |l|^2."""
    for index in range(norms.size):
        product, squares = 0.0, 0.0
        for place in range(index * bucket, min((index + 1) * bucket, vector.size)):
            level = np.float64(np.int64(symbols[place]) - levels)
            product += level * np.float64(vector[place])
            squares += level * level
        norms[index] = np.float32(levels * product / squares) if squares > 0.0 else np.float32(0.0)


@njit
def _scale(symbols: Values, bucket: int, norms: Vector, levels: int, vector: Vector) -> None:
    for index in range(norms.size):
        for place in range(index * bucket, min((index + 1) * bucket, vector.size)):
            vector[place] = np.float32(np.float64(norms[index]) * (np.int64(symbols[place]) - levels) / levels)
