"""Bloom filters (Bloom 1970), sized and used as in policy P0 of DeepReduce (Xu et al., NeurIPS 2021).

For k keys and a false-positive rate f a filter has m = k log2(1/f) / ln 2 bits and log2(1/f) hashes, both rounded up (m
to whole bytes). P0 keeps every position that the filter contains: false positives become ones. DeepReduce's default is
f = 0.1 k / d. To meet a budget of m bits instead, f = 2^(-m ln 2 / k), so a mask with half of its bits set costs one
bit per parameter only at f = 0.38.

The bits of a key come from double hashing (Kirsch & Mitzenmacher, "Less Hashing, Same Performance", 2008): with h the
64-bit hash, bit number floor((h + i * (rotl(h, 32) | 1) mod 2^64) * m / 2^64) for i = 0, 1, ...

    payload = empty, if there are no keys, else number of keys (varint), m bits
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.hashing import SHIFT_32, multiply_high, murmur64, seed_of_attempt
from subbit.codecs.packed import byte_count, count_ones, positions_of_bits
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

MAXIMUM_BITS = 1 << 32
ONE, SHIFT_3, LOW_3 = np.uint64(1), np.uint64(3), np.uint64(7)


@dataclass(frozen=True)
class BloomShape:
    byte_count: int
    hash_count: int


def bloom_shape(key_count: int, false_positive_rate: float) -> BloomShape:
    """Lengths for at least one key. Even a rate of 1 or more has one byte and one hash."""
    doublings = max(0.0, -math.log2(false_positive_rate))
    byte_count = max(1, math.ceil(key_count * doublings / math.log(2) / 8))
    if 8 * byte_count >= MAXIMUM_BITS:
        raise PayloadError(f"a Bloom filter of {8 * byte_count} bits; fewer than {MAXIMUM_BITS} can be addressed")
    return BloomShape(byte_count, max(1, math.ceil(doublings)))


def rate_for_budget(key_count: int, bits: float) -> float:
    """The false-positive rate of a filter with this number of bits."""
    return math.exp2(-bits * math.log(2) / key_count)


def build_bloom(positions: NDArray[np.uint32], seed: np.uint64, shape: BloomShape) -> NDArray[np.uint8]:
    filled = np.zeros(shape.byte_count, np.uint8)
    with np.errstate(over="ignore"):
        _insert(positions, seed, shape.hash_count, filled)
    return filled


def query_bloom(filled: NDArray[np.uint8], seed: np.uint64, hash_count: int, size: int) -> Bits:
    """Packed bits of the positions 0..size-1 that the filter contains."""
    out = np.empty((size + 7) // 8, np.uint8)
    with np.errstate(over="ignore"):
        _query(filled, seed, hash_count, out)
    if size % 8:
        out[-1] &= np.uint8((1 << size % 8) - 1)
    return out


@register_codec
@dataclass(frozen=True)
class Bloom(Codec[Bits]):
    """Bloom filter as in DeepReduce's policy P0, with a given rate or with the rate that fits a budget of bits."""

    name: ClassVar[str] = "bloom"
    number: ClassVar[int] = 32
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = False
    summary: ClassVar[str] = "Bloom filter (DeepReduce P0); without options the rate is 0.1 times the share of ones"

    false_positive_rate: float | None = None
    target_bpp: float | None = None

    def __post_init__(self) -> None:
        if self.false_positive_rate is not None and self.target_bpp is not None:
            raise ConfigError("bloom: false_positive_rate and target_bpp exclude each other")
        if self.false_positive_rate is not None and not 1e-9 <= self.false_positive_rate < 1:
            raise ConfigError(f"bloom: false_positive_rate = {self.false_positive_rate!r}; needs 1e-9 to below 1")
        if self.target_bpp is not None and not 0 < self.target_bpp <= 64:
            raise ConfigError(f"bloom: target_bpp = {self.target_bpp!r}; needs above 0, at most 64")

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        positions = positions_of_bits(payload, shared.size)
        if positions.size == 0:
            return b""
        shape = self._shape(positions.size, shared.size)
        return write_varint(positions.size) + build_bloom(positions, seed_of_attempt(shared.key, 0), shape).tobytes()

    def decode(self, data: bytes, shared: Shared) -> Bits:
        if not data:
            return np.zeros(byte_count(shared.size), np.uint8)
        key_count, offset = read_varint(data, 0, shared.size, "number of keys")
        if key_count == 0:
            raise PayloadError("a Bloom filter of 0 keys, which is sent as no bytes at all")
        shape = self._shape(key_count, shared.size)
        if len(data) - offset != shape.byte_count:
            raise PayloadError(
                f"a Bloom filter of {len(data) - offset} bytes, {key_count} keys take {shape.byte_count}"
            )
        filled = np.frombuffer(data, np.uint8, offset=offset)
        if count_ones(filled) > key_count * shape.hash_count:
            raise PayloadError(f"a Bloom filter with more bits set than {key_count} keys can set")
        return query_bloom(filled, seed_of_attempt(shared.key, 0), shape.hash_count, shared.size)

    def _shape(self, key_count: int, size: int) -> BloomShape:
        if self.target_bpp is not None:
            # No more hashes than for a rate of 1e-9: more would only slow down the reader.
            return bloom_shape(key_count, max(1e-9, rate_for_budget(key_count, self.target_bpp * size)))
        return bloom_shape(key_count, self.false_positive_rate or 0.1 * key_count / size)


@njit
def _insert(positions: NDArray[np.uint32], seed: np.uint64, hash_count: int, filled: NDArray[np.uint8]) -> None:
    bit_count = np.uint64(8 * filled.size)
    for position in positions:
        place = murmur64(np.uint64(position) + seed)
        step = (place << SHIFT_32) | (place >> SHIFT_32) | ONE
        for _ in range(hash_count):
            bit = multiply_high(place, bit_count)
            filled[bit >> SHIFT_3] |= np.uint8(ONE << (bit & LOW_3))
            place += step


@njit
def _query(filled: NDArray[np.uint8], seed: np.uint64, hash_count: int, out: Bits) -> None:
    bit_count = np.uint64(8 * filled.size)
    for byte in range(out.size):
        packed = np.uint64(0)
        for lane in range(8):
            place = murmur64(np.uint64(8 * byte + lane) + seed)
            step = (place << SHIFT_32) | (place >> SHIFT_32) | ONE
            present = ONE
            for _ in range(hash_count):
                bit = multiply_high(place, bit_count)
                present = (np.uint64(filled[bit >> SHIFT_3]) >> (bit & LOW_3)) & ONE
                if present == 0:
                    break
                place += step
            packed |= present << np.uint64(lane)
        out[byte] = packed
