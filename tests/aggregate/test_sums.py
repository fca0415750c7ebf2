"""Counts in bit planes and the weighted mean, against their plain formulas, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subbit.aggregate.mean
from subbit.aggregate import MaskCounts, SignedCounts, WeightedMean
from subbit.codecs.packed import pack_bits
from subbit.codecs.sliced import MOST_PENDING
from subbit.core.errors import PayloadError

sizes = st.one_of(st.integers(0, 200), st.sampled_from([63, 64, 65, 127, 128, 129, 1000]))


@settings(deadline=None, max_examples=60)
@given(size=sizes, masks=st.integers(0, 3 * MOST_PENDING + 2), density=st.sampled_from([0, 0.02, 0.5, 1]))
def test_counts_are_the_sum_of_the_masks(size: int, masks: int, density: float) -> None:
    drawn = np.random.default_rng([size, masks]).random((masks, size)) < density
    counts = MaskCounts(size)
    for number, mask in enumerate(drawn):
        counts.add(pack_bits(mask))
        if number % 7 == 3:  # Reading in between changes nothing.
            assert np.array_equal(counts.counts, drawn[: number + 1].sum(axis=0))
    assert counts.total == masks
    assert counts.counts.dtype == np.uint16
    assert np.array_equal(counts.counts, drawn.sum(axis=0))


def test_many_masks_are_counted_modulo_65536() -> None:
    counts = MaskCounts(65)
    ones = pack_bits(np.ones(65))
    for _ in range(65536 + 3):
        counts.add(ones)
    assert counts.counts.tolist() == [3] * 65


@pytest.mark.parametrize("mask", [np.zeros(1, np.uint8), np.zeros(3, np.uint8), np.array([0, 2], np.uint8)])
def test_a_refused_mask_leaves_the_counts_as_they_were(mask: np.ndarray) -> None:
    counts = MaskCounts(9)
    counts.add(np.array([1, 1], np.uint8))
    with pytest.raises(PayloadError):
        counts.add(mask)
    assert counts.total == 1
    assert counts.counts.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_masks_that_are_not_aligned_count_too() -> None:
    drawn = np.random.default_rng(0).random((5, 128)) < 0.5
    counts = MaskCounts(128)
    for mask in drawn:
        counts.add(np.frombuffer(b"\0" + pack_bits(mask).tobytes(), dtype=np.uint8, offset=1))
    assert np.array_equal(counts.counts, drawn.sum(axis=0))


@settings(deadline=None, max_examples=30)
@given(size=st.integers(1, 200), clients=st.integers(1, 40))
def test_signed_counts_are_the_mean_of_the_differences(size: int, clients: int) -> None:
    generator = np.random.default_rng([size, clients])
    references, flips = generator.random((2, clients, size)) < [[[0.5]], [[0.1]]]
    counts = SignedCounts(size)
    for reference, flipped in zip(references, flips, strict=True):
        counts.add(pack_bits(flipped), pack_bits(reference))
    expected = ((references ^ flips).astype(int) - references).sum(axis=0) / clients
    assert np.array_equal(counts.mean(), expected)


@settings(deadline=None, max_examples=60)
@given(
    size=sizes,
    weights=st.lists(st.one_of(st.integers(0, 10**6), st.floats(0, 1e300)), max_size=6),
    density=st.sampled_from([0, 0.01, 1]),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
)
def test_the_weighted_sum_is_that_of_numpy(size: int, weights: list[float], density: float, dtype: type) -> None:
    """Of long vectors, which the kernel adds; of short ones it is numpy's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subbit.aggregate.mean, "MANY", 0)
        check_weighted_sum(size, weights, density, dtype)


def check_weighted_sum(size: int, weights: list[float], density: float, dtype: type) -> None:
    generator = np.random.default_rng([size, len(weights)])
    mean, expected = WeightedMean(size), np.zeros(size)
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324, 1e300])
    for weight in weights:
        vector = generator.normal(size=size) * 10.0 ** generator.integers(-30, 30, size)
        vector[generator.random(size) >= density] = 0
        if size and dtype is not np.int64:
            vector[generator.integers(0, size, 3)] = generator.choice(odd, 3)
        with np.errstate(all="ignore"):
            vector = np.nan_to_num(vector).clip(-1e9, 1e9).astype(dtype) if dtype is np.int64 else vector.astype(dtype)
            mean.add(vector, weight)
            expected += np.multiply(vector, weight, dtype=np.float64)
    assert mean.sum.tobytes() == expected.tobytes() or _equal_but_for_nan(mean.sum, expected)


def _equal_but_for_nan(left: np.ndarray, right: np.ndarray) -> bool:
    """The bits of a NaN depend on the order of the operands; where it stands does not."""
    nowhere = np.isnan(left)
    same_place = np.array_equal(nowhere, np.isnan(right))
    return same_place and left[~nowhere].tobytes() == right[~nowhere].tobytes()


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        WeightedMean(3).add(np.ones(4, np.float32), 1)
