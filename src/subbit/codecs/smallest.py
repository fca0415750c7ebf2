"""Try several exact codecs and send the smallest result. The first byte is the number of the codec.

    flips  payload = empty if nothing flips, else number of the codec, payload of the codec
    mask   payload = number of the codec, payload of the codec

The fast codecs are always tried. The range coder is tried only if the entropy, at one rate for all positions or at a
rate per block, shows that it will win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.context import Context
from subbit.codecs.near import Near, is_worth_it
from subbit.codecs.packed import Packed, byte_count, check_bits
from subbit.codecs.ranged import Range, RangePrior
from subbit.codecs.rice import Rice
from subbit.core.errors import PayloadError

BLOCK_BYTES = 2048
MANY = 1 << 22
BYTES_TO_LEARN_A_RATE = 1.0


@register_codec
@dataclass(frozen=True)
class Flips(Codec[Bits]):
    """The positions where a mask differs from a reference: few, and unequally likely if both sides know the draw."""

    name: ClassVar[str] = "flips"
    number: ClassVar[int] = 15
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "the smallest of rice, range, near, context and packed; nothing costs nothing"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        if not check_bits(payload, shared.size).any():
            return b""
        return _smallest(payload, shared, self._tried(payload, shared))

    def decode(self, data: bytes, shared: Shared) -> Bits:
        if not data:
            return np.zeros(byte_count(shared.size), dtype=np.uint8)
        flips = _decode_chosen(data, shared, [*self._possible(shared), Range()])
        if not flips.any():
            raise PayloadError(f"{len(data)} bytes say that nothing flips, which takes none")
        return flips

    def _tried(self, payload: Bits, shared: Shared) -> list[Codec[Bits]]:
        possible = self._possible(shared)
        if shared.size < MANY or Near() not in possible:
            return possible
        # A server reads many of these: `near` is as small as `context` and read several times as fast.
        left_out = Context() if is_worth_it(payload, shared) else Near()
        return [codec for codec in possible if codec != left_out]

    @staticmethod
    def _possible(shared: Shared) -> list[Codec[Bits]]:
        drawn = shared.thresholds is not None and shared.uniforms_key is not None
        return [Packed(), Rice(), *([Context(), Near()] if drawn else [])]


@register_codec
@dataclass(frozen=True)
class Mask(Codec[Bits]):
    """A whole mask: about as many ones as zeros, or as the prior of each position predicts."""

    name: ClassVar[str] = "mask"
    number: ClassVar[int] = 16
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "the smallest of packed, range and range-prior"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return _smallest(check_bits(payload, shared.size), shared, self._tried(shared))

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return _decode_chosen(data, shared, [*self._tried(shared), Range()])

    @staticmethod
    def _tried(shared: Shared) -> list[Codec[Bits]]:
        return [Packed(), *([RangePrior()] if shared.thresholds is not None else [])]


def _smallest(bits: Bits, shared: Shared, tried: Sequence[Codec[Bits]]) -> bytes:
    best = min((bytes([codec.number]) + codec.encode(bits, shared) for codec in tried), key=len)
    for adaptive, expected in enumerate(_expected_bytes(bits, shared.size)):
        if expected < len(best):
            candidate = bytes([Range.number]) + Range(adaptive=bool(adaptive)).encode(bits, shared)
            best = min(best, candidate, key=len)
    return best


def _expected_bytes(bits: Bits, size: int) -> tuple[float, float]:
    """Expected bytes of the range coder: with one rate, and with one rate per block."""
    if not size:
        return 0.0, 0.0
    ones = np.add.reduceat(np.bitwise_count(bits), np.arange(0, bits.size, BLOCK_BYTES), dtype=np.int64)
    places = np.full(ones.size, 8 * BLOCK_BYTES)
    places[-1] = size - places[:-1].sum()
    one_rate = _entropy_bytes(ones.sum(keepdims=True), np.array([size]))
    many_rates = _entropy_bytes(ones, places) + BYTES_TO_LEARN_A_RATE * ones.size
    return one_rate, many_rates


def _entropy_bytes(ones: NDArray[np.int64], places: NDArray[np.int64]) -> float:
    rates = (ones / places).clip(1e-12, 1 - 1e-12)
    return float(-(ones * np.log2(rates) + (places - ones) * np.log2(1 - rates)).sum() / 8)


def _decode_chosen(data: bytes, shared: Shared, possible: Sequence[Codec[Bits]]) -> Bits:
    for codec in possible:
        if data[:1] == bytes([codec.number]):
            return codec.decode(data[1:], shared)
    names = ", ".join(f"{codec.number} ({codec.name})" for codec in possible)
    raise PayloadError(f"payload starts with {data[:1].hex() or 'nothing'}, possible are codecs {names}", "codec")
