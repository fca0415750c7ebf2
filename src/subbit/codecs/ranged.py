"""Range-coded bits with one probability for all positions, an adaptive one, or one per position that both sides know.

    range        payload = varint(2 ones + adaptive) [stream]       the bracket only where 0 < ones < size
    range-prior  payload = stream

Static, the probability of a one is ones / size: log2 C(size, ones) plus about half of log2 size bits. Adaptive, it is
estimated from the bits before each chunk with a memory of some 60,000 positions. This helps if the rate of ones drifts,
e.g. from layer to layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.packed import byte_count, check_bits, count_ones, invert_bits
from subbit.codecs.range_coder import (
    CERTAINTY,
    LARGEST_CHUNK,
    PROBABILITY_BITS,
    ContextModel,
    Model,
    Zeros,
    decode_bits,
    decode_rare_bits,
    encode_bits,
)
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

BELIEF, MEMORY = 256, 1 << 16  # In positions.
RARE = 16  # Ones are rare if they are fewer than one in this many positions.
SHIFT_8, SURE, LEAST = np.uint32(8), np.uint32(CERTAINTY), np.uint32(1)


@register_codec
@dataclass(frozen=True)
class Range(Codec[Bits]):
    """Range coder whose probability is the overall rate of ones or an adaptive estimate."""

    adaptive: bool = False

    name: ClassVar[str] = "range"
    number: ClassVar[int] = 12
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "range coder at the rate of ones; within 0.1% of the bound at any rate"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        size = shared.size
        ones = count_ones(check_bits(payload, size))
        header = write_varint(2 * ones + self.adaptive)
        if ones in (0, size):
            return header
        return header + encode_bits(payload, size, _model(self.adaptive, ones, size))

    def decode(self, data: bytes, shared: Shared) -> Bits:
        """Reads both forms: the payload tells which one it is."""
        size = shared.size
        header, offset = read_varint(data, 0, 2 * size + 1, "number of ones")
        ones, adaptive = header >> 1, bool(header & 1)
        if ones in (0, size):
            if offset != len(data):
                raise PayloadError(f"{len(data) - offset} bytes follow, {ones} ones in {size} places need none", "size")
            nothing = np.zeros(byte_count(size), dtype=np.uint8)
            return invert_bits(nothing, size) if ones else nothing
        model = _model(adaptive, ones, size)
        if RARE * ones < size:
            bits = decode_rare_bits(data[offset:], size, _one_context(model))
        else:
            bits = decode_bits(data[offset:], size, model)
        if count_ones(bits) != ones:
            raise PayloadError(f"{count_ones(bits)} ones decoded, {ones} announced", "value")
        return bits


@register_codec
@dataclass(frozen=True)
class RangePrior(Codec[Bits]):
    """Range coder with P(one) = thresholds[i] / 2^32 at position i."""

    name: ClassVar[str] = "range-prior"
    number: ClassVar[int] = 13
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "range coder with the probability of each place that both sides know"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return encode_bits(check_bits(payload, shared.size), shared.size, _prior_model(shared))

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return decode_bits(data, shared.size, _prior_model(shared))


def known_thresholds(shared: Shared) -> NDArray[np.uint32]:
    if shared.thresholds is None or shared.thresholds.shape != (shared.size,):
        raise ConfigError("this codec needs a threshold for each place that sender and receiver know")
    return np.ascontiguousarray(shared.thresholds, dtype=np.uint32)


def _model(adaptive: bool, ones: int, size: int) -> Model:
    return _FollowingModel(ones, size) if adaptive else _constant_model(ones, size)


def _one_context(model: Model) -> ContextModel:
    """For a model with the same probability everywhere in a chunk."""
    contexts = np.zeros(LARGEST_CHUNK, dtype=np.uint8)
    return lambda start, stop, bits: (model(start, stop, bits)[:1], contexts[: stop - start])


def _zero(ones: int, places: int) -> int:
    """The probability of a 0 in units of 2^-24."""
    return CERTAINTY - min(max((ones << PROBABILITY_BITS) // places, 1), CERTAINTY - 1)


def _constant_model(ones: int, size: int) -> Model:
    zeros = np.full(LARGEST_CHUNK, _zero(ones, size), dtype=np.uint32)
    return lambda start, stop, bits: zeros[: stop - start]


class _FollowingModel:
    """The rate of ones so far, with less weight for older positions. Starts from the overall rate, as if 256 positions
    had been seen.
    """

    def __init__(self, ones: int, size: int) -> None:
        self.size = size
        self.ones = ones * BELIEF  # In units of 1 / size, so that the given rate is an integer.
        self.places = size * BELIEF
        self.seen = 0

    def __call__(self, start: int, stop: int, bits: Bits) -> Zeros:
        self.ones += self.size * count_ones(bits[self.seen // 8 : start // 8])
        self.places += self.size * (start - self.seen)
        self.seen = start
        if self.places > self.size * MEMORY:
            self.ones //= 2
            self.places //= 2
        return np.full(stop - start, _zero(self.ones, self.places), dtype=np.uint32)


def _prior_model(shared: Shared) -> Model:
    thresholds = known_thresholds(shared)
    zeros = np.empty(LARGEST_CHUNK, dtype=np.uint32)

    def model(start: int, stop: int, bits: Bits) -> Zeros:
        _fill_from_thresholds(thresholds[start:stop], zeros)
        return zeros[: stop - start]

    return model


@njit
def _fill_from_thresholds(thresholds: NDArray[np.uint32], zeros: Zeros) -> None:
    for place in range(thresholds.size):
        zeros[place] = SURE - max(thresholds[place] >> SHIFT_8, LEAST)
