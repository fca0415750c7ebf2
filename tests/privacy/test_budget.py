"""The budget: how batches are drawn, how much noise that takes, what it amounts to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from subbit.privacy.budget import composed_epsilon, exact_delta, literal_multiplier, noise_multiplier
from subbit.privacy.mechanism import GaussianMechanism
from subbit.privacy.privacy import Privacy, PrivacyPerStep
from subbit.privacy.report import privacy_report
from subbit.privacy.sampling import Sampling
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def test_the_papers_sigma_by_hand() -> None:
    """ln(1.25 / 0.001) = ln 1250 = 7.1309; sqrt(14.2618) = 3.7765; / 5 = 0.7553."""
    assert literal_multiplier(5.0, 1e-3) == pytest.approx(0.7553, abs=1e-4)


def test_exact_delta_by_hand() -> None:
    """epsilon = 0, sigma = 1/2: Phi(1) - Phi(-1) = 0.6827, the total variation between N(0, 1/2) and N(1, 1/2)."""
    assert exact_delta(0.5, 0.0) == pytest.approx(0.682689, abs=1e-6)
    # The paper's sigma does hold its epsilon in a single step, beyond what its proof covers.
    assert exact_delta(literal_multiplier(5.0, 1e-3), 5.0) < 1e-3


def test_steps_without_sampling_are_one_step_with_less_noise() -> None:
    """k Gaussian steps are one with sigma / sqrt(k), whose delta is known exactly: both accountants must lie above the
    epsilon of that delta, and the tight one close to it.
    """
    sigma, delta, steps = 2.0, 1e-3, 4
    for accountant, slack in (("rdp", 0.6), ("prv", 0.03)):
        epsilon = composed_epsilon(sigma, delta, 1.0, steps, accountant)  # type: ignore[arg-type]
        assert exact_delta(sigma / math.sqrt(steps), epsilon) <= delta
        assert exact_delta(sigma / math.sqrt(steps), epsilon - slack) > delta


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise() -> None:
    def epsilon(sigma: float = 2.0, rate: float = 0.25, steps: int = 20) -> float:
        return composed_epsilon(sigma, 1e-3, rate, steps, "rdp")

    assert epsilon(steps=0) == 0
    assert epsilon(steps=10) < epsilon() < epsilon(steps=40)
    assert epsilon(rate=0.1) < epsilon() < epsilon(rate=1.0)
    assert epsilon(sigma=4.0) < epsilon() < epsilon(sigma=1.0)


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_the_noise_that_is_found_keeps_the_budget_and_hardly_more(epsilon: float) -> None:
    sigma = noise_multiplier(epsilon, 1e-3, 0.25, 20, "rdp")
    assert composed_epsilon(sigma, 1e-3, 0.25, 20, "rdp") <= epsilon
    assert composed_epsilon(0.97 * sigma, 1e-3, 0.25, 20, "rdp") > epsilon


def test_poisson_batches() -> None:
    """10,000 coins of probability 1/4 and four steps: within 5 standard deviations, sqrt(40000 * 3/16) = 86.6."""
    sampling = Sampling(10_000, 2_500)
    drawn = list(sampling.batches(1))
    assert len(drawn) == sampling.steps == 4
    assert sampling.expected == 2_500
    assert abs(sum(len(batch) for batch in drawn) - 10_000) < 5 * 86.6
    assert len({len(batch) for batch in drawn}) > 1
    # Batches are independent: an example may come twice in an epoch, and not at all.
    assert len(np.unique(np.concatenate(drawn))) < 10_000
    assert all(np.array_equal(one, other) for one, other in zip(drawn, sampling.batches(1), strict=True))
    # A client smaller than a batch uses all it has; a coin may leave a batch empty.
    assert [len(batch) for batch in Sampling(30, 50).batches(1)] == [30]
    assert any(len(batch) == 0 for batch in Sampling(20, 1).batches(1))


def mechanism(privacy: Privacy) -> GaussianMechanism:
    task = Workplace(digits_problem(), settings(method="fedavg", rounds=10)).method("main").task
    return GaussianMechanism(privacy, 50, 1, task)


def test_the_report_is_that_of_the_client_it_is_worst_for() -> None:
    """Client 1, whose batch is all it has, took part twice; the third client never came and is left out."""
    report = privacy_report(mechanism(PrivacyPerStep()), {0: 200, 1: 50, 2: 60}, {0: 1, 1: 2})
    worst = composed_epsilon(literal_multiplier(5.0, 1e-3), 1e-3, 1.0, 2, "rdp")
    assert report.epsilon == report.epsilon_spent == worst > 5
    assert "per step, not composed" in report.guarantee
    assert f"{worst:.4g}" in report.guarantee


def test_a_run_is_calibrated_for_all_rounds_and_spends_only_those_it_takes() -> None:
    every, half = (privacy_report(mechanism(Privacy()), {0: 100}, {0: turns}) for turns in (10, 5))
    assert half.epsilon_spent < every.epsilon_spent <= 5
    assert half.epsilon == every.epsilon == 5
    assert half.noise_multiplier == every.noise_multiplier
