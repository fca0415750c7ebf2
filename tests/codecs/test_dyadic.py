"""Multiples of a power of two: by hand, and that nothing is lost."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.codecs import Shared, make_codec
from subbit.codecs.dyadic import common_exponent
from subbit.codecs.steps import Steps
from subbit.core.errors import FrameError

DYADIC = make_codec("dyadic")


def test_by_hand() -> None:
    """3/4, -2 and 0 are 3, -8 and 0 quarters: the mark, the exponent -2, and these numbers."""
    vector, shared = np.array([0.75, -2.0, 0.0] * 20, np.float32), Shared(60)
    coded = Steps(step=1.0).encode(np.array([3, -8, 0] * 20, np.float32), shared)
    assert DYADIC.encode(vector, shared) == b"\x01\xfe\xff" + coded
    np.testing.assert_array_equal(DYADIC.decode(b"\x01\xfe\xff" + coded, shared), vector)


@given(exponent=st.integers(-149, 100), levels=st.lists(st.integers(-(2**23), 2**23), max_size=40))
def test_multiples_come_back(exponent: int, levels: list[int]) -> None:
    vector = np.ldexp(np.array(levels, np.float64), exponent).astype(np.float32)
    found = DYADIC.decode(DYADIC.encode(vector, Shared(vector.size)), Shared(vector.size))
    np.testing.assert_array_equal(found, vector)
    if vector.any():
        assert common_exponent(vector) >= exponent


def test_small_multiples_take_few_bits() -> None:
    levels = np.random.default_rng(0).normal(0, 4, 10_000).round()
    # The entropy of a normal number of deviation 4 in whole steps is log2(4.13 * 4) = 4.05 bits.
    assert len(DYADIC.encode((levels / 1024).astype(np.float32), Shared(10_000))) == pytest.approx(5_060, rel=0.03)


def test_other_vectors_take_one_byte_more_than_float32() -> None:
    vector = np.random.default_rng(0).normal(0, 1, 1_000).astype(np.float32)
    assert len(DYADIC.encode(vector, Shared(1_000))) == 4_001


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01\x00", b"\x01" + struct.pack("<h", 128), b"\x00\x00"])
def test_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        DYADIC.decode(data, Shared(3))


def test_values_beyond_float32_are_refused() -> None:
    coded = Steps(step=1.0).encode(np.array([2.0, 0, 0], np.float32), Shared(3))
    with pytest.raises(FrameError, match="beyond float32"):
        DYADIC.decode(b"\x01" + struct.pack("<h", 127) + coded, Shared(3))
