"""Flips under common random numbers, as `context` codes them, for a receiver of many: it looks closely only at the few
positions that lie near their threshold (`subbit.codecs.near_places`).

Positions near their threshold are coded with the rate of flips in their context (`subbit.codecs.bit_rans`), learnt from
the blocks before. Contexts forget after some 256 flips, and so follow a drift that differs from layer to layer. The
other flips are rare, and `rice` lists their positions. The sender chooses where near ends: as close as it can for two
thousandths more bytes.

    payload = index of the cut 1 | exponent of the first rate 1 | varint(bytes of the list) list stream

Rates start at 2^-exponent. What bytes mean is decided by integers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.bit_rans import open_bit_stream, write_bit_stream
from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.near_bits import RATE_BITS, plan_bits, read_bits
from subbit.codecs.near_places import BLOCK, CUTS, count_zones, tables
from subbit.codecs.packed import positions_of_bits
from subbit.codecs.ranged import known_thresholds
from subbit.codecs.rice import Rice
from subbit.codecs.sampler import Keys, Thresholds, subkeys
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError

Zones = NDArray[np.int64]

MOST_SAMPLED = 1 << 16
RICE_OVERHEAD = 1.5  # Bits per listed place beyond the logarithm of the mean gap.
TOLERANCE = 1.002
WORTH = 0.99
WIDE = 48  # From this cut on about half of the positions are near.


@register_codec
@dataclass(frozen=True)
class Near(Codec[Bits]):
    """Flips close to the threshold by their distance, the others by their gaps."""

    name: ClassVar[str] = "near"
    number: ClassVar[int] = 17
    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = True
    summary: ClassVar[str] = "as context, read several times as fast: only places near their threshold are looked at"

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        flips = positions_of_bits(payload, shared.size)
        thresholds, keys = _known(shared)
        cut, exponent = _choose(flips, thresholds, keys)
        others, entries = payload.copy(), np.empty(shared.size, dtype=np.uint32)
        with np.errstate(over="ignore"):
            count = int(plan_bits(thresholds, keys, CUTS[cut], exponent, tables(), others, entries))
        listed = Rice().encode(others, shared)
        return bytes([cut, exponent]) + write_varint(len(listed)) + listed + write_bit_stream(entries[:count])

    def decode(self, data: bytes, shared: Shared) -> Bits:
        thresholds, keys = _known(shared)
        if len(data) < 2 or data[0] >= CUTS.size or not 1 <= data[1] <= RATE_BITS:
            raise PayloadError(f"payload starts with {data[:2].hex()}, which is no cut and exponent", "value")
        length, offset = read_varint(data, 2, len(data), "number of bytes of the other flips")
        bits = Rice().decode(data[offset : offset + length], shared)
        states, words, count = open_bit_stream(data[offset + length :], BLOCK)
        with np.errstate(over="ignore"):
            in_form = read_bits(thresholds, keys, CUTS[data[0]], data[1], tables(), states, words, count, bits)
        if not in_form:
            raise PayloadError(f"the {len(data)} bytes are not the code of {shared.size} bits")
        return bits


def _known(shared: Shared) -> tuple[Thresholds, Keys]:
    if shared.uniforms_key is None:
        raise ConfigError("this codec needs the key of the uniforms with which the reference mask was drawn")
    return known_thresholds(shared), subkeys(shared.uniforms_key)


def is_worth_it(payload: Bits, shared: Shared) -> bool:
    """Whether flips are where their distance says, so that this code is smaller than one with the same rate for all."""
    flips = positions_of_bits(payload, shared.size)
    ones, places = _zones(flips, *_known(shared))
    one_rate = float(_entropy_bits(ones.sum(), places.sum()))
    return bool(_expected_bits(ones, places).min() < WORTH * one_rate)


def _choose(flips: NDArray[np.uint32], thresholds: Thresholds, keys: Keys) -> tuple[int, int]:
    """(index of the cut, exponent of the first rate)"""
    ones, places = _zones(flips, thresholds, keys)
    bits = _expected_bits(ones, places)
    cut = int(np.argmax(bits <= TOLERANCE * bits.min()))
    if cut >= WIDE:  # Nothing is gained by being closer.
        cut = int(bits.argmin())
    near, flipped = int(places[: cut + 1].sum()), int(ones[: cut + 1].sum())
    return cut, min(max((near // max(flipped, 1)).bit_length() - 1, 1), RATE_BITS)


def _zones(flips: NDArray[np.uint32], thresholds: Thresholds, keys: Keys) -> tuple[Zones, Zones]:
    """(flips, positions) between one cut and the next, from samples of both."""
    size = thresholds.size
    some_flips, some_places = _step(flips.size), _step(size)
    ones, places = np.zeros((2, CUTS.size + 1), dtype=np.int64)
    with np.errstate(over="ignore"):
        count_zones(flips[::some_flips].copy(), thresholds, keys, CUTS, ones)
        count_zones(np.arange(0, size, some_places, dtype=np.uint32), thresholds, keys, CUTS, places)
    ones *= some_flips
    return ones, np.maximum(places * some_places, ones)


def _step(count: int) -> int:
    """Odd, so that it samples all columns of a matrix."""
    return (count // MOST_SAMPLED) | 1


def _expected_bits(ones: Zones, places: Zones) -> NDArray[np.float64]:
    """For each cut."""
    near = np.cumsum(_entropy_bits(ones, places))[:-1]
    far = ones.sum() - np.cumsum(ones)[:-1]
    listed: NDArray[np.float64] = far * (np.log2(places.sum() / np.maximum(far, 1) + 1) + RICE_OVERHEAD)
    return near + listed


def _entropy_bits(ones: Zones, places: Zones) -> NDArray[np.float64]:
    rates = (ones / np.maximum(places, 1)).clip(1e-9, 1 - 1e-9)
    bits: NDArray[np.float64] = -ones * np.log2(rates) - (places - ones) * np.log2(1 - rates)
    return bits
