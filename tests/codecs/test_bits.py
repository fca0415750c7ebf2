"""Packed bits: laws against numpy, and the codec that sends them as they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.codec import Shared
from subbit.codecs.packed import (
    Packed,
    add_bits_to_counts,
    bits_of_positions,
    check_bits,
    count_ones,
    invert_bits,
    pack_bits,
    positions_of_bits,
    unpack_bits,
    xor_bits,
)
from subbit.core.errors import PayloadError

booleans = st.builds(
    lambda size, density, seed: np.random.default_rng(seed).random(size) < density,
    st.integers(0, 500),
    st.sampled_from([0, 0.01, 0.3, 0.99, 1]),
    st.integers(0, 99),
)


def test_layout_by_hand() -> None:
    """Bits 0, 3 and 8 of 9: 1 + 8 = 9 in byte 0, bit 0 of byte 1."""
    assert pack_bits([1, 0, 0, 1, 0, 0, 0, 0, 1]).tolist() == [9, 1]
    assert bits_of_positions(np.array([8, 0, 3]), 9).tolist() == [9, 1]


@settings(deadline=None, max_examples=100)
@given(values=booleans)
def test_laws(values: np.ndarray) -> None:
    size, bits = values.size, pack_bits(values)
    assert np.array_equal(unpack_bits(bits, size), values)
    assert count_ones(bits) == values.sum()
    positions = positions_of_bits(bits, size)
    assert positions.dtype == np.uint32
    assert np.array_equal(positions, np.flatnonzero(values))
    assert np.array_equal(bits_of_positions(positions, size), bits)
    assert np.array_equal(unpack_bits(invert_bits(bits, size), size), ~values)
    check_bits(invert_bits(bits, size), size)
    other = pack_bits(values[::-1])
    assert np.array_equal(xor_bits(xor_bits(bits, other), other), bits)
    counts = np.arange(size, dtype=np.uint16)
    add_bits_to_counts(bits, counts)
    assert np.array_equal(counts, np.arange(size) + values)


@settings(deadline=None, max_examples=50)
@given(values=booleans)
def test_packed_roundtrip(values: np.ndarray) -> None:
    shared, bits = Shared(values.size), pack_bits(values)
    data = Packed().encode(bits, shared)
    assert len(data) == (values.size + 7) // 8
    assert np.array_equal(Packed().decode(data, shared), bits)


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\0\0", b"\1\2"])
def test_packed_refuses_wrong_length_and_padding(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Packed().decode(data, Shared(9))


def test_misfits_are_refused() -> None:
    with pytest.raises(PayloadError, match="packed bits"):
        check_bits(np.zeros(2, np.uint16), 9)
    with pytest.raises(PayloadError, match="outside"):
        bits_of_positions(np.array([9]), 9)
    with pytest.raises(PayloadError, match="outside"):
        bits_of_positions(np.array([-1]), 9)
    with pytest.raises(PayloadError):
        xor_bits(np.zeros(2, np.uint8), np.zeros(3, np.uint8))
    with pytest.raises(PayloadError):
        add_bits_to_counts(np.zeros(2, np.uint8), np.zeros(17, np.uint16))
