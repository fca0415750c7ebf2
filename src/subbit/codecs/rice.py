"""Golomb-Rice code of the gaps between ones (Golomb, "Run-length encodings", 1966; Rice, "Some practical universal
noiseless coding techniques", 1979): the fastest exact code for sparse bits, 0.3 to 2.1% above log2 C(size, ones).

A gap g of zeros before a one is coded as g >> parameter zeros, a one, and the `parameter` low bits of g. If ones are
the majority, the zeros are listed instead.

    payload = varint(2 listed + inverted) [parameter byte, stream]      the bracket only where listed > 0

The stream starts at the least significant bit of each byte and ends with the last code and zero padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.packed import (
    DE_BRUIJN_PLACES,
    DE_BRUIJN_SHIFT,
    DE_BRUIJN_WORD,
    Positions,
    byte_count,
    check_bits,
    count_ones,
    invert_bits,
    positions_of_bits,
)
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import PayloadError
from subbit.core.jit import njit

Stream = NDArray[np.uint32]

ONE, ZERO, BITS_32 = np.uint64(1), np.uint64(0), np.uint64(32)
FIVE, BELOW_32, LOW_32 = np.uint64(5), np.uint64(31), np.uint64(0xFFFFFFFF)
LARGEST_PARAMETER = 31
NO_BITS_LEFT, BEYOND_THE_END = np.int64(-1), np.int64(-2)


@register_codec
@dataclass(frozen=True)
class Rice(Codec[Bits]):
    """Gaps between the ones (or the zeros, if they are fewer)."""

    name: ClassVar[str] = "rice"
    number: ClassVar[int] = 11
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "Golomb-Rice coded gaps between ones; fastest for sparse bits"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        size = shared.size
        listed = count_ones(check_bits(payload, size))
        inverted = 2 * listed > size
        if inverted:
            listed = size - listed
            payload = invert_bits(payload, size)
        header = write_varint(2 * listed + inverted)
        if not listed:
            return header
        parameter = best_parameter(listed, size)
        # floor(a) + floor(b) <= floor(a + b): the gaps, size - listed in total, cannot need more unary zeros than this.
        longest = listed * (parameter + 1) + ((size - listed) >> parameter)
        stream = np.zeros(longest // 32 + 2, dtype=np.uint32)
        with np.errstate(over="ignore"):
            length = int(_encode_gaps(positions_of_bits(payload, size), np.uint64(parameter), stream))
        return header + bytes([parameter]) + stream.astype("<u4", copy=False).tobytes()[: byte_count(length)]

    def decode(self, data: bytes, shared: Shared) -> Bits:
        size = shared.size
        header, offset = read_varint(data, 0, size + 1, "number of listed places")
        listed, inverted = header >> 1, bool(header & 1)
        if 2 * listed + inverted > size:
            raise PayloadError(f"{listed} listed places are not the smaller part of {size}", "value")
        bits = np.zeros(byte_count(size), dtype=np.uint8)
        if listed:
            if offset == len(data) or data[offset] > LARGEST_PARAMETER:
                raise PayloadError("Rice parameter is missing or too large", "value")
            offset = self._decode_listed(data, offset, listed, size, bits)
        if offset != len(data):
            raise PayloadError(f"{len(data) - offset} bytes follow the last code", "size")
        return invert_bits(bits, size) if inverted else bits

    @staticmethod
    def _decode_listed(data: bytes, offset: int, listed: int, size: int, bits: Bits) -> int:
        parameter, start = data[offset], offset + 1
        stream = np.zeros((len(data) - start + 3) // 4 + 1, dtype="<u4")
        stream.view(np.uint8)[: len(data) - start] = np.frombuffer(data, dtype=np.uint8, offset=start)
        with np.errstate(over="ignore"):
            length = int(_decode_gaps(stream.astype(np.uint32, copy=False), np.uint64(parameter), listed, size, bits))
        if length == BEYOND_THE_END:
            raise PayloadError(f"a listed place lies outside {size} places", "value")
        end = start + byte_count(length)
        if length == NO_BITS_LEFT or end > len(data):
            raise PayloadError(f"stream ends before the last of {listed} listed places", "truncated")
        if length % 8 and data[end - 1] >> (length % 8):
            raise PayloadError("padding behind the last code is not zero")
        return end


def best_parameter(listed: int, size: int) -> int:
    """The best parameter for geometric gaps: the expected length is parameter + 1 + s / (1 - s) bits with s = (1 -
    p)^(2^parameter).
    """
    survival = [(1 - listed / size) ** (1 << parameter) for parameter in range(LARGEST_PARAMETER + 1)]
    return int(np.argmin([parameter + 1 + s / (1 - s) for parameter, s in enumerate(survival)]))


@njit
def _encode_gaps(positions: Positions, parameter: np.uint64, stream: Stream) -> np.int64:
    """Return the length of the stream in bits. `stream` must be zero and long enough."""
    written = np.int64(0)
    pending, filled = ZERO, ZERO  # The low `filled` < 32 bits of `pending` are not yet written.
    remainder_mask = (ONE << parameter) - ONE
    next_place = ZERO
    for index in range(positions.size):
        place = np.uint64(positions[index])
        gap = place - next_place
        next_place = place + ONE
        zeros = gap >> parameter
        while zeros + filled >= BITS_32:
            stream[written] = np.uint32(pending)
            written += 1
            pending = ZERO
            zeros -= BITS_32 - filled
            filled = ZERO
        pending |= (((gap & remainder_mask) << ONE) | ONE) << (zeros + filled)
        filled += zeros + ONE + parameter
        # Written every time but advanced only when full, which avoids an unpredictable branch.
        stream[written] = np.uint32(pending & LOW_32)
        full = filled >> FIVE
        written += np.int64(full)
        pending >>= full << FIVE
        filled &= BELOW_32
    stream[written] = np.uint32(pending)
    return written * 32 + np.int64(filled)


@njit
def _decode_gaps(stream: Stream, parameter: np.uint64, listed: int, size: int, bits: Bits) -> np.int64:
    """Return the length of the codes in bits, or an error code. The last word of `stream` is for reading ahead."""
    read = np.int64(0)
    window, filled = ZERO, ZERO  # The next `filled` bits.
    place = np.uint64(0)
    end = np.uint64(size)
    remainder_mask = (ONE << parameter) - ONE
    for _ in range(listed):
        zeros = ZERO
        while True:
            if filled < BITS_32:
                if read == stream.size:
                    return NO_BITS_LEFT
                window |= np.uint64(stream[read]) << filled
                read += 1
                filled += BITS_32
            lowest = window & (~window + ONE)
            if lowest != ZERO:
                break
            zeros += filled
            filled = ZERO
            if zeros > end:
                return BEYOND_THE_END
        run = np.uint64(DE_BRUIJN_PLACES[(lowest * DE_BRUIJN_WORD) >> DE_BRUIJN_SHIFT])
        zeros += run
        window = (window >> run) >> ONE
        filled -= run + ONE
        if filled < parameter:
            if read == stream.size:
                return NO_BITS_LEFT
            window |= np.uint64(stream[read]) << filled
            read += 1
            filled += BITS_32
        place += (zeros << parameter) | (window & remainder_mask)
        if place >= end:
            return BEYOND_THE_END
        bits[place >> np.uint64(3)] |= np.uint8(ONE << (place & np.uint64(7)))
        place += ONE
        window >>= parameter
        filled -= parameter
    return read * 32 - np.int64(filled)
