"""Golomb-Rice gaps: by hand, by law, against the bound, on damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from exact_laws import booleans, bound_bytes, check_hostile, check_roundtrip, draw_booleans
from hypothesis import given, settings

from subbit.codecs.codec import Shared
from subbit.codecs.packed import bits_of_positions
from subbit.codecs.rice import Rice, best_parameter
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import PayloadError


def test_by_hand() -> None:
    """Ones at 2 and 9 of 16: p = 1/8. Expected lengths: k=1: 2 + .766/.234 = 5.27, k=2: 3 + .586/.414 = 4.42,
    k=3: 4 + .344/.656 = 4.52, so k = 2. Gaps 2 and 6: 2 = 0 * 4 + 2 is "1" then "01" (low bit first), 6 = 1 * 4 + 2 is
    "01" then "01". Stream 1 0 1 0 1 0 1, first bit lowest: 0b1010101 = 0x55. Header: varint(2 * 2 + 0) = 4.
    """
    assert best_parameter(2, 16) == 2
    assert Rice().encode(bits_of_positions(np.array([2, 9]), 16), Shared(16)) == bytes([4, 2, 0x55])


@pytest.mark.parametrize("size", [0, 1, 8, 1000])
def test_nothing_and_everything_cost_one_byte(size: int) -> None:
    nothing = check_roundtrip(Rice(), np.zeros(size, np.bool_), Shared(size))
    everything = check_roundtrip(Rice(), np.ones(size, np.bool_), Shared(size))
    assert nothing == b"\0"
    assert everything == (b"\1" if size else b"\0")


@settings(deadline=None, max_examples=200)
@given(values=booleans)
def test_roundtrip(values: np.ndarray) -> None:
    check_roundtrip(Rice(), values, Shared(values.size))


@settings(deadline=None, max_examples=30)
@given(values=booleans)
def test_damage(values: np.ndarray) -> None:
    # The parameter is the sender's choice, so that some other spellings are in form.
    data = check_roundtrip(Rice(), values, Shared(values.size))
    check_hostile(Rice(), data, Shared(values.size), canonical=False)


@pytest.mark.parametrize("parameter", range(32))
def test_every_parameter_decodes(parameter: int) -> None:
    """Ones at 0 and 2^20: gap 0 is "1" and zeros; gap 2^20 - 1 in Python integers, packed as one large number."""
    size, gap = (1 << 20) + 1, (1 << 20) - 1
    if parameter < 8:
        size, gap = 4001, 3999
    codes = [(1, parameter + 1)]
    codes.append((((gap & ((1 << parameter) - 1)) << 1 | 1) << (gap >> parameter), (gap >> parameter) + 1 + parameter))
    number, length = 0, 0
    for code, bits in codes:
        number |= code << length
        length += bits
    data = bytes([4, parameter]) + number.to_bytes((length + 7) // 8, "little")
    assert np.array_equal(Rice().decode(data, Shared(size)), bits_of_positions(np.array([0, gap + 1]), size))


@pytest.mark.parametrize("rate", [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.98])
def test_within_one_and_a_half_percent_of_the_bound(rate: float) -> None:
    values = draw_booleans(1_000_000, rate, seed=7, clustered=False)
    data = check_roundtrip(Rice(), values, Shared(values.size))
    bound = bound_bytes(int(values.sum()), values.size)
    assert bound <= len(data) <= 1.015 * bound + 6


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends inside"),
        (bytes([200, 1]), "at most"),
        (bytes([17, 2, 0x55]), "smaller part"),
        (bytes([4]), "missing"),
        (bytes([4, 32, 0x55]), "too large"),
        (bytes([4, 2]), "outside"),
        (bytes([4, 2, 0]), "outside"),
        (bytes([2, 31, 1]), "stream ends"),
        (bytes([4, 2, 0x55, 0]), "follow"),
        (bytes([4, 2, 0xD5]), "padding"),
        (bytes([0, 0]), "follow"),
        (bytes([0x84, 0, 2, 0x55]), "more bytes"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        Rice().decode(data, Shared(16))


def test_varint() -> None:
    """300 = 0b10_0101100: low group 0101100 with the mark 0x80 is 0xAC, then 2."""
    assert write_varint(300) == b"\xac\x02"
    for value in (0, 1, 127, 128, 2**31, 2**63):
        assert read_varint(b"x" + write_varint(value), 1, 2**63, "number") == (value, 1 + len(write_varint(value)))
    with pytest.raises(PayloadError):
        read_varint(b"\x80" * 12, 0, 2**70, "number")
