"""Flips under common random numbers, each coded with its own probability.

Both sides know the reference mask [u_i < t_i], t = thresholds, and its uniforms u. The sender's mask is [u_i < t'_i]
with the same u, so position i flips only if u_i lies between t_i and t'_i. If training moves the logits by some
distribution, the probability of a flip decreases with the distance |logit(u_i) - logit(t_i)|. This distance, in
quarters of an octave, is the context of position i. The flip rate of each context is learnt from the preceding
positions, which both sides know, starting from the overall rate given in the payload.

    payload = varint(flips) [stream of the range coder]      the bracket only if there are flips

All arithmetic is integer: logits come from a table over the upper 16 bits, in units of 2^-10 bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.packed import byte_count, check_bits, count_ones
from subbit.codecs.range_coder import CERTAINTY, LARGEST_CHUNK, PROBABILITY_BITS, Zeros, decode_bits, encode_bits
from subbit.codecs.ranged import known_thresholds
from subbit.codecs.sampler import uniforms
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

FRACTION_BITS = 10
NEAREST = 16  # Smaller distances are one context: 16 units are a hundredth of a logit.
CONTEXTS = 46
BELIEF, MEMORY = 8, 1 << 16  # In positions.
SHIFT_16 = np.uint32(16)


@register_codec
@dataclass(frozen=True)
class Context(Codec[Bits]):
    """Range coder whose probability depends on how close the uniform of a position is to its threshold."""

    name: ClassVar[str] = "context"
    number: ClassVar[int] = 14
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "flips under common random numbers, by the distance of uniform and threshold"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        flips = count_ones(check_bits(payload, shared.size))
        header, model = write_varint(flips), _DistanceModel(flips, shared)
        return header + encode_bits(payload, shared.size, model) if flips else header

    def decode(self, data: bytes, shared: Shared) -> Bits:
        flips, offset = read_varint(data, 0, shared.size, "number of flips")
        model = _DistanceModel(flips, shared)
        if not flips:
            if offset != len(data):
                raise PayloadError(f"{len(data) - offset} bytes follow, no flips need none", "size")
            return np.zeros(byte_count(shared.size), dtype=np.uint8)
        bits = decode_bits(data[offset:], shared.size, model)
        if count_ones(bits) != flips:
            raise PayloadError(f"{count_ones(bits)} flips decoded, {flips} announced", "value")
        return bits


class _DistanceModel:
    """The flip rate of each context so far, starting as if `BELIEF` positions at the overall rate had been seen."""

    def __init__(self, flips: int, shared: Shared) -> None:
        if shared.uniforms_key is None:
            raise ConfigError("this codec needs the key of the uniforms with which the reference mask was drawn")
        self.key = shared.uniforms_key
        self.thresholds = known_thresholds(shared)
        self.rate = (flips << PROBABILITY_BITS) // max(shared.size, 1)
        self.flips = np.zeros(CONTEXTS, dtype=np.int64)
        self.places = np.zeros(CONTEXTS, dtype=np.int64)
        self.contexts = np.zeros(LARGEST_CHUNK, dtype=np.uint8)
        self.seen = 0

    def __call__(self, start: int, stop: int, bits: Bits) -> Zeros:
        _learn(self.contexts, bits, self.seen, start, self.flips, self.places)
        self.seen = start
        old = self.places > MEMORY
        self.flips[old] >>= 1
        self.places[old] >>= 1
        rates = ((self.flips << PROBABILITY_BITS) + BELIEF * self.rate) // (self.places + BELIEF)
        zero_of_context = (CERTAINTY - rates.clip(1, CERTAINTY - 1)).astype(np.uint32)
        zeros = np.empty(stop - start, dtype=np.uint32)
        drawn = uniforms(self.key, start, stop - start)
        _look_up(drawn, self.thresholds[start:stop], *_tables(), zero_of_context, self.contexts, zeros)
        return zeros


@cache
def _tables() -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    """(logit of the upper 16 bits, context of a distance)"""
    middles = 2 * np.arange(1 << 16, dtype=np.uint64) + np.uint64(1)
    logits = (_logarithm(middles) - _logarithm(np.uint64(1 << 17) - middles)).astype(np.int16)
    distances = np.arange(2 * int(logits.max()) + 1)
    octaves = np.array([int(distance).bit_length() - 1 for distance in distances])
    quarters = 4 * (octaves - 4) + (distances >> np.maximum(octaves - 2, 0)) % 4 + 1
    return logits, np.where(distances < NEAREST, 0, quarters).astype(np.uint8)


def _logarithm(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """floor(2^10 log2(values)) for values of at most 17 bits, one bit at a time: squaring doubles the logarithm."""
    result = np.zeros(values.size, dtype=np.int64)
    for exponent in range(17):
        result += values >> np.uint64(exponent + 1) > 0
    mantissas = values << (np.uint64(31) - result.astype(np.uint64))
    for _ in range(FRACTION_BITS):
        mantissas = (mantissas * mantissas) >> np.uint64(31)
        carry = mantissas >> np.uint64(32)
        mantissas >>= carry
        result = 2 * result + carry.astype(np.int64)
    return result


@njit
def _look_up(
    drawn: NDArray[np.uint32],
    thresholds: NDArray[np.uint32],
    logits: NDArray[np.int16],
    context_of_distance: NDArray[np.uint8],
    zero_of_context: Zeros,
    contexts: NDArray[np.uint8],
    zeros: Zeros,
) -> None:
    for place in range(drawn.size):
        distance = np.int64(logits[drawn[place] >> SHIFT_16]) - np.int64(logits[thresholds[place] >> SHIFT_16])
        context = context_of_distance[abs(distance)]
        contexts[place] = context
        zeros[place] = zero_of_context[context]


@njit
def _learn(
    contexts: NDArray[np.uint8], bits: Bits, start: int, stop: int, flips: NDArray[np.int64], places: NDArray[np.int64]
) -> None:
    for place in range(start, stop):
        context = contexts[place - start]
        places[context] += 1
        flips[context] += np.int64((bits[place >> 3] >> np.uint8(place & 7)) & np.uint8(1))
