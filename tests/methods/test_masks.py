"""Masks: the posterior, the thresholds and the flips, against numbers derived by hand and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subbit.aggregate import MaskCounts
from subbit.codecs import Counts
from subbit.codecs.packed import count_ones, pack_bits, unpack_bits
from subbit.codecs.sampler import sample_bits
from subbit.core.errors import ConfigError
from subbit.exchange.posterior import Moved, counts_of
from subbit.maps.bound import FULL
from subbit.maps.masks import normal_scores_table, scores_of_thresholds
from subbit.methods.deltamask import DeltaMask, bernoulli_divergence
from subbit.methods.method import Turn
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def make(method: str = "deltamask", **values: object) -> DeltaMask:
    return Workplace(digits_problem(), settings(method=method, **values)).method("main")  # type: ignore[return-value]


def test_the_posterior_of_equal_masks_is_that_mask_kept_off_the_edges() -> None:
    """K = 4 equal masks: M / K is 0 or 1, the clamp of 0.01 makes it 0.01 or 0.99; the mean is 1/6 or 5/6."""
    ones = pack_bits([True, False] * 4)
    accumulator = MaskCounts(8)
    for _ in range(4):
        accumulator.add(ones)
    theta = Counts(accumulator.total, accumulator.counts)
    mode = make(estimator="mode").exchange.thresholds(theta) / FULL
    mean = make(estimator="mean").exchange.thresholds(theta) / FULL
    assert mode == pytest.approx([0.99, 0.01] * 4, abs=1e-6)
    assert mean == pytest.approx([5 / 6, 1 / 6] * 4, abs=1e-6)


def test_the_posterior_adds_up_over_a_period_and_then_starts_anew() -> None:
    """2 of 6 clients a round: period 3. Rounds 0, 1, 2 pile up 2, 4, 6 masks; round 3 starts again with 2."""
    parts = [np.arange(i * 10, i * 10 + 10) for i in range(6)]
    method = Workplace(digits_problem(parts=parts), settings(clients=6, participation=1 / 3)).method("main")
    state, totals = method.start(), []
    for round_number in range(4):
        accumulator = method.accumulator()
        for _ in range(2):
            accumulator.add(np.full((method.size + 7) // 8, 0x0F, dtype=np.uint8))
        state = method.step(state, accumulator, round_number)
        totals.append(counts_of(state).total)
    assert totals == [2, 4, 6, 2]
    assert counts_of(state).values[:8].tolist() == [2, 2, 2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("theta", ["counts", "dense"])
def test_both_sides_get_the_same_integers_from_a_broadcast(theta: str) -> None:
    method = make(down_codec=theta)
    state = {"counts": np.arange(method.size, dtype=np.uint16) % 4, "total": 3}
    view = method.open(method.broadcast(state, 1), 1)
    assert view.dtype == np.uint32
    again = method.open(method.broadcast(state, 1), 1)
    assert np.array_equal(view, again)
    assert view[:4] / FULL == pytest.approx([0.01, 1 / 3, 2 / 3, 0.99], abs=1e-6)


def test_scores_and_thresholds_are_inverse_to_each_other() -> None:
    thresholds = np.array([1 << 20, 1 << 31, 0xF3333333], dtype=np.uint32)
    theta = torch.sigmoid(scores_of_thresholds(thresholds).double()).numpy()
    assert theta == pytest.approx(thresholds / FULL, rel=1e-5)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_scores_that_did_not_move_keep_their_thresholds_exactly(values: list[int]) -> None:
    thresholds = np.array(values, dtype=np.uint32)
    scores = scores_of_thresholds(thresholds)
    assert np.array_equal(make().map.moved(thresholds, scores.clone()), thresholds)


@pytest.mark.parametrize("seed_scope", ["client", "round"])
def test_without_learning_coupled_masks_have_no_flips(seed_scope: str) -> None:
    method = make(learning_rate=0.0, seed_scope=seed_scope)
    view = method.open(method.broadcast(method.start(), 0), 0)
    for client in range(3):
        update = method.train(view, digits_problem().client_data(client), Turn(0, client, {}))
        assert count_ones(update.payloads["flips"]) == 0
        assert update.observations["moved"] == 0


def test_without_learning_the_expected_posterior_is_the_broadcast() -> None:
    """A martingale: with K masks drawn from theta the mean of M / K over many rounds is theta (0.3 here, K = 3).

    20 rounds of about 1,200 places: the standard error of the mean is sqrt(.21 / (3 * 20 * 1184)) = 0.0017.
    """
    method = make(learning_rate=0.0, theta_init=0.3, coupling="independent")
    view = method.map.initial_thresholds()
    accumulator = method.accumulator()
    for round_number in range(20):
        for client in range(3):
            update = method.train(
                view, digits_problem().client_data(client).select(np.arange(2)), Turn(round_number, client, {})
            )
            method.accumulate(accumulator, view, update.payloads, 1, round_number, client)
    assert accumulator.counts.sum() / (accumulator.total * method.size) == pytest.approx(0.3, abs=0.007)


def test_a_coupled_flip_happens_as_often_as_theta_moved() -> None:
    """P(flip) = |0.5 - 0.6| = 0.1 with shared uniforms; 0.5 * 0.4 + 0.5 * 0.6 = 0.5 with independent ones."""
    size = 200_000
    before, after = (np.full(size, int(theta * FULL), dtype=np.uint32) for theta in (0.5, 0.6))
    coupled = count_ones(sample_bits(before, 1) ^ sample_bits(after, 1)) / size
    independent = count_ones(sample_bits(before, 1) ^ sample_bits(after, 2)) / size
    assert coupled == pytest.approx(0.1, abs=0.004)
    assert independent == pytest.approx(0.5, abs=0.006)


def test_the_server_rebuilds_exactly_the_mask_that_the_client_drew() -> None:
    method = make(kappa=1.0, kappa_schedule="const")
    data = digits_problem().client_data(1)
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, data, Turn(0, 1, {}))
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, update.payloads, len(data), 0, 1)
    after = method.exchange.trained(view)
    method.trainer.train(after, data, Turn(0, 1, {}))
    trained = method.map.moved(view, after)
    key = method.parameters.up.reference_key(method.task, 0, 1)
    expected = unpack_bits(sample_bits(trained, key), method.size)
    assert count_ones(update.payloads["flips"]) > 0
    assert np.array_equal(accumulator.counts, expected)


def test_kappa_rises_along_half_a_cosine() -> None:
    """From 0.8 to 1 over 5 rounds: 1 - 0.2 * (1 + cos(pi t / 4)) / 2 = .8, .829289, .9, .970711, 1."""
    method = make(rounds=5)
    assert [method.parameters.up.share(t, 5) for t in range(5)] == pytest.approx([0.8, 0.8292893, 0.9, 0.9707107, 1.0])
    assert make(rounds=5, kappa_schedule="const").parameters.up.share(3, 5) == 0.8
    assert make(rounds=1).parameters.up.share(0, 1) == 0.8


def test_the_flips_that_are_kept_have_the_largest_divergence_and_ties_go_to_the_lower_index() -> None:
    method = make(kappa=0.5, kappa_schedule="const")
    before, after = np.full(method.size, 1 << 31, dtype=np.uint32), torch.zeros(method.size)
    after[[3, 10, 20, 31, 40]] = torch.tensor([1.0, 4.0, 1.0, -3.0, 1.0])
    flips = np.zeros(method.size, dtype=bool)
    flips[[3, 10, 20, 31, 40]] = True
    moved = Moved(method.map, before, np.zeros(method.size, dtype=np.uint32), after)
    kept = method.parameters.up._most_important(pack_bits(flips), moved, method.task, Turn(0, 0, {}))
    # ceil(0.5 * 5) = 3: 10 (|s| = 4), 31 (|s| = 3, the divergence is symmetric around 1/2), then the first of the
    # equal ones.
    assert np.flatnonzero(unpack_bits(kept, method.size)).tolist() == [3, 10, 31]


def test_divergence_by_hand_and_where_probabilities_saturate() -> None:
    """KL(Bern(.8) || Bern(.5)) = .8 ln 1.6 + .2 ln .4 = 0.192745; of a sure one against sigmoid(-60): ln e^60 = 60."""
    after, before = torch.logit(torch.tensor([0.8], dtype=torch.float64)), torch.zeros(1, dtype=torch.float64)
    assert bernoulli_divergence(after, before).item() == pytest.approx(0.8 * math.log(1.6) + 0.2 * math.log(0.4))
    extreme = bernoulli_divergence(torch.tensor([60.0, -60.0, 60.0]), torch.tensor([-60.0, 60.0, 60.0]))
    assert extreme.tolist() == pytest.approx([60.0, 60.0, 0.0])


def test_initial_scores_from_a_normal_have_its_moments_and_no_rounding_accident() -> None:
    table = normal_scores_table() / FULL
    assert table.mean() == pytest.approx(0.5, abs=1e-4)
    assert table.std() == pytest.approx(0.2083, abs=2e-3)  # Standard deviation of sigmoid(N(0, 1)).
    method = make(theta_init="normal")
    assert method.map.initial_thresholds().mean() / FULL == pytest.approx(0.5, abs=0.03)


def test_more_masks_than_a_count_can_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="reset_every"):
        make(reset_every=30_000)


def test_a_mask_over_a_fitted_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="head=kaiming or head=keep"):
        make(head="probe", select="all: weights")


@pytest.mark.parametrize(
    ("weights", "factor"), [("auto", math.sqrt(2)), ("signed", math.sqrt(2)), ("signed-e", math.e), ("keep", None)]
)
@pytest.mark.parametrize("method", ["fedpm", "deltamask", "threshold-mask", "sparse-masks"])
def test_masks_are_over_signed_constants_unless_the_weights_are_worth_keeping(
    method: str, weights: str, factor: float | None
) -> None:
    """The first layer has 64 inputs: factor / 8, the sign that of the module's own weight."""
    workplace = Workplace(digits_problem(), settings(method=method, weights=weights))
    main = workplace.method("main")
    own = main.task.flat.template.views(main.task.flat.initial)[0]
    frozen = main.task.flat.template.views(main.map.frozen)[0]
    assert torch.equal(frozen.sign(), own.sign())
    if factor is None:
        assert torch.equal(frozen, own)
    else:
        assert frozen.abs().unique().tolist() == pytest.approx([factor / 8])
