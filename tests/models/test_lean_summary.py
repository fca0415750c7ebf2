"""What a client sends for a lean head: what it rounds and by how much, and that nothing can break it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from subbit.models.discriminant import EXACT, Rounding, Spectrum
from subbit.models.feature_summary import FeatureSummary, floor_for
from subbit.models.head_start import LdaStatistics, solve
from subbit.models.lean_head import LeanPool, round_shaped, shaped_head
from subbit.models.lean_summary import EXAMPLES, LeanSummary, is_drawn

MANY = 1000
"""Clients."""


def examples(count: int, width: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(count, width, generator=generator) @ torch.randn(width, width, generator=generator)
    labels = torch.arange(count) % classes
    return mixed + 3 * torch.randn(classes, width, generator=generator)[labels] + 10, labels


def within(statistics: LdaStatistics) -> Tensor:
    return statistics.moment - statistics.between


def pooled(summaries: list[LeanSummary]) -> LeanPool:
    pools = [LeanPool.of(each) for each in summaries]
    return LeanPool(torch.stack([each.vector for each in pools]).sum(0), pools[0].classes, pools[0].width)


def test_by_hand() -> None:
    """One class, (0, 0, 5), (2, 4, 5): means (1, 2, 5), scatter 2 and 8, deviations sqrt(2) and 2 sqrt(2), the third
    feature is constant. The median, the lower of two, stands at level 1; twice as much is 16 steps above it. One free
    example, so deviations are units; the centre is 1 / (sqrt(2) / 2) = 1.4 -> 1 step of them, and 64 of the constant.
    One free example has the least floor, 0.002: a step of sqrt(12 0.002) = 0.155. The sum of two examples less two
    centres, in steps of 0.155 sqrt(2 examples / 1 class) deviations: 2 (1 - sqrt(2) / 2) / (0.155 2) = 1.9 -> 2. One
    row of factors (1, 1), 6 steps: 36 0.155^2 = 0.864 of the variation is common to both features."""
    found = LeanSummary.of(torch.tensor([[0.0, 0.0, 5.0], [2.0, 4.0, 5.0]]), torch.tensor([0, 0]), 2, 1, True)
    assert found.counts.tolist() == [2, 0]
    assert found.units[:3].tolist() == pytest.approx([math.sqrt(2), 5 / 32, 0.1549], rel=2**-8)
    assert found.levels.tolist() == [1, 17, 0]
    assert found.deviations.tolist() == pytest.approx([math.sqrt(2), 2 * math.sqrt(2), 0], rel=2**-8)
    assert found.numbers[0].tolist() == [1, 1, 64]
    assert found.numbers[1].tolist() == [2, 2, 0]
    assert found.numbers[3].abs().tolist() == [6, 6, 0]
    again = found.statistics()
    assert again.sums[0].tolist() == pytest.approx([2, 4, 10], abs=0.1)
    assert again.sums[1].tolist() == [0, 0, 0]
    common = 4 * 0.864
    expected = torch.tensor([[2.0, common, 0], [common, 8, 0], [0, 0, 0]]).double()
    torch.testing.assert_close(again.moment, expected, rtol=0.01, atol=0)


def test_deviations_are_off_by_at_most_half_a_step() -> None:
    features, labels = examples(60, 30, 3)
    exact = within(LdaStatistics.from_features(features, labels, 3)).diagonal().sqrt()
    for drawn, steps in ((True, 16), (False, 2)):
        found = LeanSummary.of(features, labels, 3, MANY, drawn)
        assert float(torch.log2(found.deviations / exact).abs().max()) <= 0.5 / steps + 1e-9


def test_clients_that_are_not_drawn_send_no_factors() -> None:
    features, labels = examples(60, 30, 3)
    found = LeanSummary.of(features, labels, 3, MANY, False)
    assert not found.has_factors
    assert not found.numbers[4:].any()
    assert not found.statistics().moment.any()


def test_class_means_are_off_by_at_most_half_a_step() -> None:
    features, labels = examples(300, 20, 5)
    labels = (labels * (torch.arange(300) % 3 > 0)).long()
    exact = LdaStatistics.from_features(features, labels, 5)
    found = LeanSummary.of(features, labels, 5, MANY, False)
    step = float(found.units[2])
    assert step <= 2
    error = (found.statistics().sums - exact.sums).abs() / found.scales / exact.counts.sqrt()[:, None]
    assert float(error.max()) <= step / 2 * (1 + 1e-9)


def test_one_client_rounds_as_finely_as_with_factors() -> None:
    features, labels = examples(90, 40, 3)
    careful, lean = FeatureSummary.of(features, labels, 3), LeanSummary.of(features, labels, 3, 1, True)
    assert float(lean.units[2]) == float(careful.scales[-1])
    exact = within(LdaStatistics.from_features(features, labels, 3))
    errors = [float((each - exact).norm()) for each in (within(careful.statistics()), lean.statistics().moment)]
    assert errors[1] < 1.5 * errors[0] + 0.03 * float(exact.norm())


def test_floors_by_hand() -> None:
    """Shrinkage 0.5 of 100 free examples: 0.5^3 is above 0.1, the most of one client. Of a crowd of two, 0.5^2 = 0.25
    is below sqrt(0.1). Of a large one nearly 0.5. And 0.1 x (32 / 64)^2 where one client has 32 examples, which is no
    reason for care in a crowd."""
    assert floor_for(0.5, 100) == 0.1
    assert floor_for(0.5, 100, 2) == 0.25
    assert floor_for(0.5, 100, MANY) == pytest.approx(0.5, rel=0.01)
    assert floor_for(0.5, 32) == 0.025
    assert floor_for(0.5, 32, MANY) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(("clients", "own", "width"), [(3, 100, 50), (20, 100, 1280), (400, 10, 60), (50, 5000, 96)])
def test_drawn_clients_have_enough_examples_or_are_all(clients: int, own: int, width: int) -> None:
    drawn = sum(is_drawn(rank, own, width) for rank in range(clients))
    assert drawn == clients or EXAMPLES <= drawn * min(own, width) < EXAMPLES + min(own, width)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 99),
    st.sampled_from([1e-35, 1e-20, 1.0, 1e5]),
    st.sampled_from([1, 2, MANY]),
    st.booleans(),
)
def test_every_summary_gives_a_head(
    count: int, width: int, classes: int, seed: int, scale: float, clients: int, drawn: bool
) -> None:
    features, labels = examples(count, width, classes, seed)
    found = LeanSummary.of((scale * features).float(), labels, classes, clients, drawn)
    for whole in (found.numbers, found.levels):
        assert torch.equal(whole, whole.round())
    assert torch.equal(found.units.bfloat16().double(), found.units)
    pool = pooled([found, found])
    statistics = pool.statistics()
    assert statistics.counts.sum() == 2 * count
    assert bool(torch.isfinite(statistics.moment).all())
    assert float(torch.linalg.eigvalsh(within(statistics))[0]) >= -1e-9 * float(statistics.moment.trace())
    weight, bias = shaped_head(statistics, *solve(statistics, rounding=pool.rounding))
    assert bool(torch.isfinite(weight).all() & torch.isfinite(bias).all())


def test_the_covariance_is_that_of_the_senders_for_all_examples() -> None:
    features, labels = examples(400, 10, 4)
    halves = [LeanSummary.of(features[k::2], labels[k::2] * 0, 1, 2, k == 0) for k in (0, 1)]
    pool = pooled(halves)
    alone, means = halves[0].statistics().moment, [each.statistics().sums[0] / 200 for each in halves]
    among = 100 * torch.outer(means[0] - means[1], means[0] - means[1])  # n1 n2 / (n1 + n2).
    torch.testing.assert_close(within(pool.statistics()), alone * (199 + 199) / 199 + among)
    assert pool.rounding.free == pytest.approx(199 + 1)
    assert pool.rounding.floor == pytest.approx(halves[0].floor)
    assert pool.rounding.means == pytest.approx(float(halves[0].units[2]) ** 2 / 12)


def test_without_factors_features_vary_independently() -> None:
    """Those who were drawn failed: the deviations of all others are left."""
    features, labels = examples(200, 10, 2)
    found = LeanSummary.of(features, labels, 2, MANY, False)
    pool = pooled([found])
    torch.testing.assert_close(within(pool.statistics()), torch.diag(found.deviations.square()))
    assert pool.rounding.free is None
    weight, bias = solve(pool.statistics(), rounding=pool.rounding)
    assert float(((features @ weight.T + bias).argmax(1) == labels).float().mean()) > 0.7


def test_what_is_known_of_rounding_lowers_the_temperature() -> None:
    """Fewer examples behind the covariance, noise of the means, directions that may vary more: new examples are
    separated less, or vary more. Nothing of this: the same bits."""
    eigenvalues, counts = torch.tensor([0.01, 1.0, 2.0]).double(), torch.tensor([50.0, 50.0]).double()
    means = torch.tensor([[0.5, 1.0, 0.0], [-0.5, 0.0, 1.0]]).double()

    def found(rounding: Rounding) -> float:
        return Spectrum.of(eigenvalues, 1.0, means, counts, rounding).separation(0.01).temperature

    assert (
        found(Rounding()) == found(EXACT) == Spectrum.of(eigenvalues, 1.0, means, counts).separation(0.01).temperature
    )
    for rounding in (Rounding(free=10), Rounding(means=0.5), Rounding(floor=0.2)):
        assert found(rounding) < found(EXACT)


def test_shaped_rounding_by_hand() -> None:
    """The last value, 0.4, is rounded to 0: its error moves the first by 0.4 x 0.5 / 1, from 0.4 to 0.6, that is 1."""
    root = torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double()
    assert round_shaped(torch.tensor([[0.4, 0.4]]).double(), root).tolist() == [[1.0, 0.0]]
    assert round_shaped(torch.tensor([[0.4, 0.4]]).double(), torch.eye(2).double()).tolist() == [[0.0, 0.0]]


def test_shaped_rounding_adds_less_noise_where_features_vary_together() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = 3 * torch.randn(50, 20, generator=generator).double()
    mixed = torch.randn(400, 20, generator=generator).double() @ torch.diag(2.0 ** -torch.arange(20)).double()
    features = mixed @ torch.randn(20, 20, generator=generator).double()
    covariance = features.T @ features / 400 + 1e-4 * torch.eye(20).double()
    root = torch.linalg.cholesky(covariance).T

    def noise(rounded: Tensor) -> float:
        return float((features @ (rows - rounded).T).square().mean())

    assert noise(round_shaped(rows, root)) < 0.2 * noise(rows.round())


def test_rounding_a_head_adds_the_noise_it_may() -> None:
    features, labels = examples(400, 24, 4)
    statistics = LdaStatistics.from_features(features, labels, 4)
    weight, bias = solve(statistics)
    rounded, moved = shaped_head(statistics, weight, bias)
    centred = features - (statistics.sums / statistics.counts[:, None]).float()[labels]
    logits = centred @ (weight - weight.mean(0)).T
    error = features @ (rounded - weight).T + moved - bias
    # The step is a power of two below the noise that is allowed, and the ridge is part of the prediction.
    assert 0.02 < float(error.std() / logits.std()) < 0.25
    assert float(error.mean(0).abs().max() / logits.std()) < 0.1
