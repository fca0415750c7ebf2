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
from subbit.codecs.range_coder import (
    CERTAINTY,
    LARGEST_CHUNK,
    PROBABILITY_BITS,
    Contexts,
    Zeros,
    decode_rare_bits,
    encode_bits,
)
from subbit.codecs.ranged import known_thresholds
from subbit.codecs.sampler import hash_place, subkeys
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

FRACTION_BITS = 10
NEAREST = 16  # Smaller distances are one context: 16 units are a hundredth of a logit.
CONTEXTS = 46
BELIEF, MEMORY = 8, 1 << 16  # In positions.
BLOCK = 1024  # Uniforms drawn at a time, so that they stay in the cache.
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
        return header + encode_bits(payload, shared.size, model.zeros) if flips else header

    def decode(self, data: bytes, shared: Shared) -> Bits:
        flips, offset = read_varint(data, 0, shared.size, "number of flips")
        model = _DistanceModel(flips, shared)
        if not flips:
            if offset != len(data):
                raise PayloadError(f"{len(data) - offset} bytes follow, no flips need none", "size")
            return np.zeros(byte_count(shared.size), dtype=np.uint8)
        bits = decode_rare_bits(data[offset:], shared.size, model)
        if count_ones(bits) != flips:
            raise PayloadError(f"{count_ones(bits)} flips decoded, {flips} announced", "value")
        return bits


class _DistanceModel:
    """The flip rate of each context so far, starting as if `BELIEF` positions at the overall rate had been seen."""

    def __init__(self, flips: int, shared: Shared) -> None:
        if shared.uniforms_key is None:
            raise ConfigError("this codec needs the key of the uniforms with which the reference mask was drawn")
        self.keys = subkeys(shared.uniforms_key)
        self.thresholds = known_thresholds(shared)
        self.rate = (flips << PROBABILITY_BITS) // max(shared.size, 1)
        self.flips = np.zeros(CONTEXTS, dtype=np.int64)
        self.places = np.zeros(CONTEXTS, dtype=np.int64)
        self.contexts = np.zeros(LARGEST_CHUNK, dtype=np.uint8)
        self.seen = 0

    def __call__(self, start: int, stop: int, bits: Bits) -> tuple[Zeros, Contexts]:
        _learn(self.contexts[: start - self.seen], bits[self.seen // 8 : start // 8], self.flips, self.places)
        self.seen = start
        contexts = self.contexts[: stop - start]
        _find_contexts(self.thresholds[start:stop], np.uint32(start), *self.keys, *_tables(), contexts)
        return _zero_of_context(self.flips, self.places, self.rate), contexts

    def zeros(self, start: int, stop: int, bits: Bits) -> Zeros:
        zero_of_context, contexts = self(start, stop, bits)
        zeros: Zeros = zero_of_context[contexts]
        return zeros


@cache
def _tables() -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    """(logit of the upper 16 bits, context of a distance)"""
    return logit_table(16), context_of_distance()


def logit_table(bits: int) -> NDArray[np.int16]:
    """Logits of the upper bits of a threshold or uniform, at most 16 of them."""
    middles = 2 * np.arange(1 << bits, dtype=np.uint64) + np.uint64(1)
    return (_logarithm(middles) - _logarithm(np.uint64(2 << bits) - middles)).astype(np.int16)


def context_of_distance() -> NDArray[np.uint8]:
    """For every distance that logits of 16 bits can have."""
    distances = np.arange(2 * int(logit_table(16).max()) + 1)
    octaves = np.array([int(distance).bit_length() - 1 for distance in distances])
    quarters = 4 * (octaves - 4) + (distances >> np.maximum(octaves - 2, 0)) % 4 + 1
    return np.where(distances < NEAREST, 0, quarters).astype(np.uint8)


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


# Each step has a loop of its own. In one loop they are slower: a store to a counter that is not known yet holds up the
# loads of all later positions.


@njit
def _find_contexts(
    thresholds: NDArray[np.uint32],
    start: np.uint32,
    first: np.uint32,
    second: np.uint32,
    third: np.uint32,
    logits: NDArray[np.int16],
    context_of_distance: NDArray[np.uint8],
    contexts: Contexts,
) -> None:
    drawn = np.empty(BLOCK, np.uint32)
    for base in range(0, thresholds.size, BLOCK):
        stop = min(BLOCK, thresholds.size - base)
        for index in range(stop):
            place = np.uint32(start + np.uint32(base + index))
            drawn[index] = hash_place(place, first, second, third) >> SHIFT_16
        for index in range(stop):
            known = thresholds[base + index] >> SHIFT_16
            distance = np.int32(logits[drawn[index]]) - np.int32(logits[known])
            contexts[base + index] = context_of_distance[np.uint32(abs(distance))]


@njit
def _learn(contexts: Contexts, bits: Bits, flips: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    for context in contexts:
        places[context] += 1
    for byte in range(bits.size):
        if bits[byte] != 0:  # Flips are rare.
            for lane in range(8):
                flips[contexts[8 * byte + lane]] += np.int64((bits[byte] >> np.uint8(lane)) & np.uint8(1))


@njit
def _zero_of_context(flips: NDArray[np.int64], places: NDArray[np.int64], rate: int) -> Zeros:
    """The probability of a 0 in each context. What was seen long ago counts less."""
    zeros = np.empty(CONTEXTS, np.uint32)
    for context in range(CONTEXTS):
        if places[context] > MEMORY:
            flips[context] >>= 1
            places[context] >>= 1
        flip = ((flips[context] << PROBABILITY_BITS) + BELIEF * rate) // (places[context] + BELIEF)
        zeros[context] = CERTAINTY - min(max(flip, 1), CERTAINTY - 1)
    return zeros
