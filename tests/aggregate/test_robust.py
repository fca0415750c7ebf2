"""Robust means against numbers by hand and numpy, their laws, and the bound on what one mask can do."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from subbit.aggregate import MEDIAN, AgreeingMean, MaskCounts, TrimmedMean, WeightedMean, clip_to_norm, trimmed_counts
from subbit.aggregate.robust import PIECE, dropped_per_end
from subbit.codecs import Counts
from subbit.codecs.sampler import thresholds_of_counts

values = st.floats(-1e6, 1e6, width=32)
stacks = arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=values)


def trimmed(vectors: np.ndarray, trim: float) -> np.ndarray:
    accumulator = TrimmedMean(vectors.shape[1], trim)
    for vector in vectors:
        accumulator.add(vector, 1)
    return accumulator.mean()


def test_the_trimmed_mean_by_hand() -> None:
    """Ten values 1 ... 9 and 1000: at 0.1 one goes at each end, the mean of 2 ... 9 is 44 / 8 = 5.5.

    At 0.25 ceil(2.5) = 3 go: the mean of 4 ... 7 is 5.5 again. The mean of all is 104.5.
    """
    column = np.array([[3, 1, 4, 1000, 5, 9, 2, 6, 8, 7]], np.float32).T
    assert trimmed(column, 0.1).tolist() == [5.5]
    assert trimmed(column, 0.25).tolist() == [5.5]
    assert trimmed(column, 0).tolist() == [104.5]


@given(stacks)
def test_the_median_is_that_of_numpy(vectors: np.ndarray) -> None:
    assert np.allclose(trimmed(vectors, MEDIAN), np.median(vectors.astype(np.float64), axis=0), rtol=1e-12)


@given(stacks, st.floats(0, 0.49), st.randoms(use_true_random=False))
def test_the_order_of_the_clients_changes_no_bit(vectors: np.ndarray, trim: float, random: object) -> None:
    order = list(range(len(vectors)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert trimmed(vectors, trim).tobytes() == trimmed(vectors[order], trim).tobytes()


@given(stacks, st.data())
def test_liars_up_to_the_trimmed_share_leave_the_result_between_honest_values(
    honest: np.ndarray, data: st.DataObject
) -> None:
    """With l liars among K and at least l values dropped at each end, what stays lies between honest values."""
    liars = data.draw(st.integers(0, len(honest) - 1))
    lies = data.draw(arrays.arrays(np.float32, (liars, honest.shape[1]), elements=values))
    together = np.concatenate([honest, lies])
    result = trimmed(together, MEDIAN)
    assert dropped_per_end(len(together), MEDIAN) >= liars
    assert (result >= honest.min(axis=0)).all()
    assert (result <= honest.max(axis=0)).all()


def test_a_vector_longer_than_a_piece_is_trimmed_in_pieces() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 2 * PIECE + 3)).astype(np.float32)
    assert np.array_equal(trimmed(vectors, MEDIAN), np.median(vectors, axis=0))


def test_clients_without_data_are_no_opinion_and_nobody_is_zero() -> None:
    accumulator = TrimmedMean(2, 0.1)
    assert accumulator.mean().tolist() == [0, 0]
    accumulator.add(np.array([5, 5], np.float32), 0)
    accumulator.add(np.array([1, 2], np.float32), 7)
    assert accumulator.mean().tolist() == [1, 2]


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=values), st.floats(1e-3, 1e3))
def test_clipping_keeps_the_direction_and_bounds_the_norm(vector: np.ndarray, bound: float) -> None:
    clipped, norm = clip_to_norm(vector, bound), math.sqrt((vector.astype(np.float64) ** 2).sum())
    factor = min(1.0, bound / norm) if norm else 1.0
    assert np.allclose(clipped, vector * factor, rtol=1e-5, atol=1e-30)
    assert math.sqrt((clipped.astype(np.float64) ** 2).sum()) <= bound * (1 + 1e-6) or norm <= bound


def test_clipping_by_hand() -> None:
    """|(3, 4)| = 5, so a bound of 1 gives (0.6, 0.8); a bound of 5 or more changes nothing."""
    vector = np.array([3, 4], np.float32)
    assert clip_to_norm(vector, 1) == pytest.approx([0.6, 0.8])
    assert clip_to_norm(vector, 5) is vector


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(2, 9), st.just(4)), elements=values),
    arrays.arrays(np.float32, 4, elements=values),
    st.floats(0.1, 100),
)
def test_one_clipped_client_moves_the_mean_by_at_most_twice_the_bound_over_k(
    vectors: np.ndarray, lie: np.ndarray, bound: float
) -> None:
    means = []
    for first in (vectors[0], lie):
        accumulator = WeightedMean(4)
        for vector in (first, *vectors[1:]):
            accumulator.add(clip_to_norm(vector, bound), 1)
        means.append(accumulator.mean())
    assert np.linalg.norm(means[1] - means[0]) <= 2 * bound / len(vectors) * (1 + 1e-5)


@given(st.integers(1, 12), st.integers(1, 40), st.sampled_from(["mode", "mean"]), st.data())
def test_one_mask_moves_a_probability_by_at_most_one_over_k(
    clients: int, size: int, estimator: Literal["mode", "mean"], data: st.DataObject
) -> None:
    """The mode is M / K (clamped, which brings values closer), the mean (1 + M) / (2 + K), with M a sum of K zeros and
    ones: another mask for one client changes M by -1, 0 or 1. The thresholds are probabilities times 2^32, rounded.
    """
    masks = data.draw(arrays.arrays(np.bool_, (clients, size)))
    replacement = data.draw(arrays.arrays(np.bool_, size))
    table = thresholds_of_counts(clients, estimator, clamp_numerator=1, clamp_denominator=100)
    thetas = []
    for first in (masks[0], replacement):
        accumulator = MaskCounts(size)
        for mask in (first, *masks[1:]):
            accumulator.add(np.packbits(mask, bitorder="little"))
        assert accumulator.total == clients
        thetas.append(table[accumulator.counts] / 2**32)
    assert np.abs(thetas[1] - thetas[0]).max() <= 1 / clients + 2**-31


@given(arrays.arrays(np.bool_, st.tuples(st.integers(1, 30), st.just(6))), st.floats(0, 0.49))
def test_trimmed_counts_are_the_trimmed_mean_of_the_masks(masks: np.ndarray, trim: float) -> None:
    counts = trimmed_counts(Counts(len(masks), masks.sum(axis=0).astype(np.uint16)), trim)
    assert counts.values.dtype == np.uint16
    assert (counts.values <= counts.total).all()
    assert np.allclose(counts.values / counts.total, trimmed(masks.astype(np.float32), trim))


def test_trimming_undoes_flipped_masks() -> None:
    """Ten clients, theta = 1/2 and 1: eight honest ones count 4 and 8, two liars who flip add 1 and 0. M = 5 and 8.

    At trim 0.2 two bits go at each end: 3 of 6 and 6 of 6, which is 1/2 and 1 again.
    """
    counts = trimmed_counts(Counts(10, np.array([5, 8], np.uint16)), 0.2)
    assert (counts.total, counts.values.tolist()) == (6, [3, 6])


def agreeing(vectors: np.ndarray, trim: float) -> AgreeingMean:
    accumulator = AgreeingMean(vectors.shape[1], trim)
    for vector in vectors:
        accumulator.add(vector, 1)
    return accumulator


def test_agreement_by_hand() -> None:
    """Votes: 2 - 1 = 1 at place 0, 2 at place 1, -1 at place 2, 0 at place 3. Client 0 says + of places 0 and 1: (1 +
    2 - 2) / 2 = 1/2, client 1 the same, client 2 says - of places 0 and 2: (-1 + 1 - 2) / 2 = -1, client 3 nothing. At
    trim 0.25 one of four goes, client 2, and the mean of the others is 4/3 4/3 0 0."""
    vectors = np.array([[1, 1, 0, 0], [3, 3, 0, 0], [-9, 0, -9, 0], [0, 0, 0, 0]], np.float32)
    assert agreeing(vectors, 0.25).agreements() == [0.5, 0.5, -1.0, 0.0]
    assert agreeing(vectors, 0.25).mean() == pytest.approx([4 / 3, 4 / 3, 0, 0])
    assert agreeing(vectors, 0).mean() == pytest.approx([-5 / 4, 1, -9 / 4, 0])
    assert AgreeingMean(2, 0.2).mean().tolist() == [0, 0]


@given(stacks)
def test_without_trimming_agreement_is_the_mean(vectors: np.ndarray) -> None:
    assert np.allclose(agreeing(vectors, 0).mean(), vectors.astype(np.float64).mean(axis=0), rtol=1e-9, atol=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 2))
def test_who_says_the_opposite_of_everybody_is_left_out(seed: int, liars: int) -> None:
    """Honest clients name overlapping places with one sign each; liars, however loud, the same ones with the other. Of
    ten at trim 0.2 two go: no liar is left, and the mean is one of honest values."""
    generator = np.random.default_rng(seed)
    signs = generator.choice([-1.0, 1.0], 60)
    honest = [signs * (generator.random(60) < 0.5) for _ in range(10 - liars)]
    lies = [-1e6 * honest[index] for index in range(liars)]
    mean = agreeing(np.array([*lies, *honest], np.float32), 0.2).mean()
    assert np.abs(mean).max() <= 1
    if liars == 2:
        assert np.allclose(mean, np.mean(honest, axis=0))
