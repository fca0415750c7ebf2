"""Packed bits: operations shared by methods, codecs and aggregation, and the codec that sends bits uncompressed.

Bit i is bit (i % 8) of byte i // 8; padding bits are 0 (see `subbit.codecs.codec`). The kernels read 64-bit words, so
that 64 zeros cost one comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

Positions = NDArray[np.uint32]
Words = NDArray[np.uint64]

ONE, ZERO = np.uint64(1), np.uint64(0)
UNCONDITIONAL = 3
# Multiplying an isolated bit (a power of two) by a de Bruijn sequence yields a different 6-bit pattern at the top for
# each position of the bit.
DE_BRUIJN = 0x03F79D71B4CB0A89
DE_BRUIJN_WORD, DE_BRUIJN_SHIFT = np.uint64(DE_BRUIJN), np.uint64(58)
DE_BRUIJN_PLACES = np.zeros(64, dtype=np.uint32)
for _place in range(64):
    DE_BRUIJN_PLACES[((DE_BRUIJN << _place) & ((1 << 64) - 1)) >> 58] = _place


def byte_count(size: int) -> int:
    return (size + 7) // 8


def pack_bits(booleans: ArrayLike) -> Bits:
    return np.packbits(np.asarray(booleans, dtype=np.bool_), bitorder="little")


def unpack_bits(bits: Bits, size: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits, count=size, bitorder="little").view(np.bool_)


def check_bits(bits: Bits, size: int) -> Bits:
    """Return the bits after checking that they are `size` packed bits with zero padding."""
    if bits.dtype != np.uint8 or bits.ndim != 1 or bits.size != byte_count(size):
        raise PayloadError(
            f"{bits.size} values of {bits.dtype}, {size} packed bits are {byte_count(size)} bytes", "size"
        )
    if size % 8 and int(bits[-1]) >> (size % 8):
        raise PayloadError(f"padding after bit {size} is not zero")
    return bits


def count_ones(bits: Bits) -> int:
    return int(np.bitwise_count(words_of_bits(bits)).sum(dtype=np.int64))


def xor_bits(left: Bits, right: Bits) -> Bits:
    """Two masks give the flips; a mask and the flips give the other mask."""
    if left.shape != right.shape:
        raise PayloadError(f"bits of {left.size} and of {right.size} bytes cannot be combined", "size")
    return np.bitwise_xor(left, right)


def invert_bits(bits: Bits, size: int) -> Bits:
    inverted = np.invert(bits)
    if size % 8:
        inverted[-1] &= (1 << (size % 8)) - 1
    return inverted


def words_of_bits(bits: Bits) -> Words:
    """The bytes as 64-bit words, the last one padded with zeros. Copies only if the length requires it."""
    if bits.size % 8 or not bits.flags.c_contiguous or not bits.flags.aligned:
        padded = np.zeros((bits.size + 7) // 8 * 8, dtype=np.uint8)
        padded[: bits.size] = bits
        bits = padded
    return bits.view("<u8").astype(np.uint64, copy=False)


def positions_of_bits(bits: Bits, size: int) -> Positions:
    """Positions of the ones, ascending."""
    words = words_of_bits(check_bits(bits, size))
    ones = int(np.bitwise_count(words).sum(dtype=np.int64))
    positions = np.empty(ones + UNCONDITIONAL, dtype=np.uint32)
    with np.errstate(over="ignore"):
        _list_positions(words, positions)
    return positions[:ones]


def bits_of_positions(positions: NDArray[np.integer], size: int) -> Bits:
    """Ones at these positions, in any order."""
    if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= size):
        raise PayloadError(f"position {int(positions.max())} lies outside {size} places", "value")
    bits = np.zeros(byte_count(size), dtype=np.uint8)
    _set_positions(np.ascontiguousarray(positions, dtype=np.uint32), bits)
    return bits


def add_bits_to_counts(bits: Bits, counts: NDArray[np.uint16]) -> None:
    """counts[i] += bit i, in place: the server sums masks without storing them."""
    check_bits(bits, counts.size)
    _add_bits(bits, counts)


@register_codec
@dataclass(frozen=True)
class Packed(Codec[Bits]):
    """One bit per position. The baseline for all other codecs."""

    name: ClassVar[str] = "packed"
    number: ClassVar[int] = 10
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "bits as they are, one per place"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return check_bits(payload, shared.size).tobytes()

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return check_bits(np.frombuffer(data, dtype=np.uint8), shared.size).copy()


@njit
def _list_positions(words: Words, positions: Positions) -> None:
    """Writes up to `UNCONDITIONAL` extra entries after the last one."""
    found = np.int64(0)
    for word in range(words.size):
        rest = words[word]
        if rest == ZERO:
            continue
        base = np.uint32(word * 64)
        # Most words of sparse bits have one, two or three ones. Writing three unconditionally costs less than one
        # branch misprediction; extra entries are overwritten by the next word.
        for _ in range(UNCONDITIONAL):
            lowest = rest & (~rest + ONE)
            positions[found] = base + DE_BRUIJN_PLACES[(lowest * DE_BRUIJN_WORD) >> DE_BRUIJN_SHIFT]
            found += np.int64(rest != ZERO)
            rest ^= lowest
        while rest != ZERO:
            lowest = rest & (~rest + ONE)
            positions[found] = base + DE_BRUIJN_PLACES[(lowest * DE_BRUIJN_WORD) >> DE_BRUIJN_SHIFT]
            found += 1
            rest ^= lowest


@njit
def _set_positions(positions: Positions, bits: Bits) -> None:
    for index in range(positions.size):
        position = positions[index]
        bits[position >> np.uint32(3)] |= np.uint8(1 << (position & np.uint32(7)))


@njit
def _add_bits(bits: Bits, counts: NDArray[np.uint16]) -> None:
    full = counts.size // 8
    for byte in range(full):
        value = np.uint16(bits[byte])
        for lane in range(8):
            counts[byte * 8 + lane] += (value >> np.uint16(lane)) & np.uint16(1)
    for place in range(full * 8, counts.size):
        counts[place] += np.uint16((bits[full] >> np.uint8(place % 8)) & np.uint8(1))
