"""Multiples of a step: the error, the bits, rows of zeros and rows that are too large."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.codecs import Shared, make_codec
from subbit.codecs.steps import LARGEST, SPREADS, _alphabet
from subbit.core.errors import ConfigError, PayloadError


def there_and_back(vector: np.ndarray, **options: Any) -> tuple[np.ndarray, int]:
    codec, shared = make_codec("steps", **options), Shared(vector.size)
    data = codec.encode(vector.astype(np.float32), shared)
    return codec.decode(data, shared), len(data)


@given(st.lists(st.integers(-3000, 3000), max_size=40), st.integers(1, 9))
def test_whole_numbers_arrive_as_they_are(numbers: list[int], row: int) -> None:
    vector = np.array(numbers, np.float32)
    assert np.array_equal(there_and_back(vector, step=1.0, row=row)[0], vector)


def test_no_value_is_off_by_more_than_half_a_step() -> None:
    vector = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    found, _ = there_and_back(vector, step=0.1, row=100)
    assert np.abs(found - vector).max() <= 0.05 + 1e-6


@pytest.mark.parametrize("deviation", [0.5, 1.0, 3.0, 30.0, 200.0])
def test_normal_rows_take_little_more_than_their_entropy(deviation: float) -> None:
    """log2(deviation sqrt(2 pi e)) bits for steps of 1, if the deviation is not far below a step."""
    vector = np.random.default_rng(1).normal(0, deviation, 20000)
    bits = 8 * there_and_back(vector, step=1.0, row=500)[1] / vector.size
    levels = np.unique(np.rint(vector), return_counts=True)[1] / vector.size
    entropy = float(-(levels * np.log2(levels)).sum())
    assert bits <= entropy + 0.25
    if deviation >= 1:
        assert bits <= math.log2(deviation * math.sqrt(2 * math.pi * math.e)) + 0.2


def test_bits_go_where_the_values_are() -> None:
    rows = np.random.default_rng(2).normal(size=(40, 100)) * 0.7 ** np.arange(40)[:, None] * 50
    _, together = there_and_back(rows.ravel(), step=1.0, row=4000)
    _, apart = there_and_back(rows.ravel(), step=1.0, row=100)
    assert apart < 0.8 * together


def test_zero_rows_cost_a_byte_and_none_at_the_end() -> None:
    zero = np.zeros(1000, np.float32)
    assert there_and_back(zero, row=10)[1] == 1
    first = zero.copy()
    first[0] = 1
    last = np.flip(first)
    assert there_and_back(last, step=1.0, row=10)[1] - there_and_back(first, step=1.0, row=10)[1] == 99


def test_rows_that_are_too_large_are_sent_as_they_are() -> None:
    vector = np.array([1, 2, 3, 1e30, 0.1, 5], np.float32)
    found, size = there_and_back(vector, step=1.0, row=2)
    assert found.tolist() == pytest.approx([1, 2, 3, 1e30, 0, 5], rel=1e-6)
    assert size >= 8


def test_alphabets_reach_far_enough() -> None:
    for spread in range(SPREADS):
        symbols, frequencies = _alphabet(spread)
        assert frequencies.sum() == 1 << 16
        assert frequencies.min() >= 1
        assert np.array_equal(symbols - LARGEST, -np.flip(symbols - LARGEST))
    assert symbols.size == 2 * LARGEST + 1


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x05", "number of rows"),
        (b"\x01\x00", "one of zeros"),
        (b"\x01\x40", "spread"),
        (b"\x01\xff", "large values"),
    ],
)
def test_damaged_bytes_are_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(PayloadError, match=complaint):
        make_codec("steps", row=4).decode(data, Shared(16))


@pytest.mark.parametrize("options", [{"step": 0.0}, {"step": math.nan}, {"row": 0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"needs a number|at least one"):
        make_codec("steps", **options)
