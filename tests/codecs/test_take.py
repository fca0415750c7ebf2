"""Tables looked up in one pass, and thresholds of broadcast probabilities, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as laws
from hypothesis import strategies as st

from subbit.aggregate import trimmed_counts
from subbit.codecs.codec import Counts
from subbit.codecs.sampler import thresholds_of_counts
from subbit.codecs.take import take, thresholds_of_theta
from subbit.exchange.posterior import MILLION, Beta
from subbit.maps.bound import FULL, as_thresholds


@pytest.mark.parametrize("dtype", [np.uint32, np.float32, np.float64])
def test_take_is_indexing(dtype: type) -> None:
    table = np.random.default_rng(0).random(31).astype(dtype) * 1000
    values = np.random.default_rng(1).integers(0, 31, 1001).astype(np.uint16)
    assert np.array_equal(take(table, values), table[values])
    assert take(table, values).dtype == dtype
    assert np.array_equal(take(table[::2], values // 2), table[::2][values // 2])


def test_values_beyond_the_table_are_its_last_entry() -> None:
    assert take(np.array([5, 6, 7]), np.array([0, 2, 3, 65535], np.uint16)).tolist() == [5, 7, 7, 7]
    with pytest.raises(IndexError):
        take(np.zeros(0), np.zeros(1, np.uint16))


@laws(deadline=None, max_examples=50)
@given(
    total=st.integers(1, 300),
    trim=st.sampled_from([0.0, 0.1, 0.3]),
    estimator=st.sampled_from(["mode", "mean"]),
    seed=st.integers(0, 99),
)
def test_thresholds_are_those_of_the_trimmed_counts(total: int, trim: float, estimator: str, seed: int) -> None:
    """Also of counts that exceed their total, which only a damaged state has."""
    beta = Beta(estimator=estimator, trim=trim)
    values = np.random.default_rng(seed).integers(0, total + 5, 200).astype(np.uint16)
    trimmed = trimmed_counts(Counts(total, values), trim)
    clamp = round(beta.clamp * MILLION)
    table = thresholds_of_counts(trimmed.total, estimator, clamp_numerator=clamp, clamp_denominator=MILLION)
    assert np.array_equal(beta.thresholds(Counts(total, values)), table[trimmed.values])


@laws(deadline=None, max_examples=100)
@given(st.lists(st.floats(-2, 2, width=32), max_size=40))
def test_thresholds_of_probabilities(theta: list[float]) -> None:
    edges = [0.0, -0.0, 1.0, float(np.nextafter(np.float32(1), np.float32(0))), 2.0**-33, 2.0**-32, 2.0**-149]
    broadcast = np.array([*theta, *edges], dtype=np.float32)
    assert np.array_equal(thresholds_of_theta(broadcast), as_thresholds(broadcast.astype(np.float64) * FULL))
