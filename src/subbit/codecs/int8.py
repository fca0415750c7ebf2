"""Eight bits per value: each chunk is quantised in steps of its largest magnitude / 127.

`stochastic` rounds up with a probability equal to the distance from the lower step, drawn with the shared key. It is
unbiased and has twice the squared error of rounding to nearest. On the wire: one float32 step per chunk, then one
signed byte per value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_finite, check_length, check_vector, values_from_bytes, values_to_bytes
from subbit.codecs.sampler import uniforms
from subbit.core.errors import ConfigError, PayloadError

LARGEST_LEVEL = 127
ROUNDING_PURPOSE = 0x526F756E64696E67


@register_codec
@dataclass(frozen=True)
class Int8(Codec[Vector]):
    """`chunk` values share a step; `stochastic` rounding is unbiased."""

    name = "int8"
    number = 4
    kind = Kind.VECTOR
    exact = False
    summary = "8 bits a value in steps of each chunk's maximum / 127"

    chunk: int = 4096
    stochastic: bool = False

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ConfigError(f"chunk is {self.chunk}, a chunk has at least one value")

    def contractive(self) -> Int8:
        """Round to the nearest level. As 0 is a level, no error exceeds the value itself, and the largest value is
        exact.
        """
        return replace(self, stochastic=False)

    def fixed_length(self, size: int) -> int:
        return 4 * -(-size // self.chunk) + size

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        starts = np.arange(0, vector.size, self.chunk)
        largest = np.maximum.reduceat(np.abs(vector), starts) if vector.size else vector
        steps = (largest / np.float32(LARGEST_LEVEL)).astype(np.float32)
        with np.errstate(over="ignore"):
            if np.isinf(steps * np.float32(LARGEST_LEVEL)).any():
                raise PayloadError(f"a value of magnitude {largest.max()} is too large for 8 bits", cause="value")
        # If the step is 0 (only zeros or the smallest denormals), every level is 0.
        divisors = np.repeat(np.where(steps > 0, steps, np.inf), self._lengths(shared.size))
        positions = vector.astype(np.float64) / divisors
        if self.stochastic:
            positions = np.floor(positions + uniforms(shared.key ^ ROUNDING_PURPOSE, 0, vector.size) / 2.0**32)
        levels: NDArray[np.int8] = np.clip(np.rint(positions), -LARGEST_LEVEL, LARGEST_LEVEL).astype(np.int8)
        return values_to_bytes(steps, "float32") + levels.tobytes()

    def decode(self, data: bytes, shared: Shared) -> Vector:
        lengths = self._lengths(shared.size)
        check_length(data, 4 * len(lengths) + shared.size, f"{shared.size} values of 8 bits")
        steps = values_from_bytes(data[: 4 * len(lengths)], len(lengths), "float32", "the list of steps")
        levels = np.frombuffer(data, np.int8, offset=4 * len(lengths))
        if (steps < 0).any() or (levels < -LARGEST_LEVEL).any():
            raise PayloadError("a negative step, or a level of -128", cause="value")
        with np.errstate(over="ignore"):
            vector: Vector = levels.astype(np.float32) * np.repeat(steps, lengths)
        check_finite(vector, "the decoded vector")
        return vector

    def _lengths(self, size: int) -> NDArray[np.int64]:
        """Number of values in each chunk."""
        return np.diff(np.append(np.arange(0, size, self.chunk), size))
