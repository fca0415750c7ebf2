"""What a client sends for the fitted head: what it holds exactly, what it rounds, and that nothing can break it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from subbit.models.feature_summary import LEAST_FLOOR, MOST_FLOOR, FeatureSummary, factors, likely_shrinkage
from subbit.models.head_start import LdaStatistics, solve


def examples(count: int, width: int, rank: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features that vary within classes along `rank` directions."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(count, rank, generator=generator) @ torch.randn(rank, width, generator=generator)
    labels = torch.arange(count) % classes
    return mixed + 3 * torch.randn(classes, width, generator=generator)[labels] + 10, labels


def within(statistics: LdaStatistics) -> Tensor:
    return statistics.moment - statistics.between


def test_by_hand() -> None:
    """One class at 0 and 2, and 5 and 5: mean 1, scatter 1 + 1 = 2 and one free example, so the unit is sqrt(2), and
    the centre 1 / (sqrt(2) / 4) = 2.83 -> 3 steps. The second feature is constant: 64 steps are 5. One feature varies:
    its correlation with itself is 1. Two classes, the second without examples."""
    found = FeatureSummary.of(torch.tensor([[0.0, 5.0], [2.0, 5.0]]), torch.tensor([0, 0]), 2)
    assert found.counts.tolist() == [2, 0]
    assert found.scales[:3].tolist() == pytest.approx([math.sqrt(2), 0, 5 / 16], rel=2**-8)
    assert found.numbers[0].tolist() == [3, 64]
    assert found.numbers[2].tolist() == [0, 0]
    assert found.numbers[3, 0].abs() > 0
    assert found.numbers[3:, 1].tolist() == [0, 0]
    again = found.statistics()
    assert again.sums[0].tolist() == pytest.approx([2, 10], abs=0.2)
    assert again.sums[1].tolist() == [0, 0]
    torch.testing.assert_close(within(again), torch.tensor([[2.0, 0], [0, 0]]).double(), atol=0.02, rtol=0)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_few_directions_are_found_again_up_to_the_floor(rank: int) -> None:
    features, labels = examples(400, 24, rank, 3)
    exact, found = LdaStatistics.from_features(features, labels, 3), FeatureSummary.of(features, labels, 3)
    deviations = within(exact).diagonal().sqrt()
    error = (within(found.statistics()) - within(exact)) / deviations[:, None] / deviations
    # F + E gives F'E + E'F + E'E. E is noise of [rank, 24] values with column squares of the floor, whose norm is
    # sqrt(floor) (1 + sqrt(24 / rank)).
    largest = float(torch.linalg.matrix_norm(within(exact) / deviations[:, None] / deviations, 2))
    noise = math.sqrt(LEAST_FLOOR) * (1 + math.sqrt(24 / rank))
    assert float(torch.linalg.matrix_norm(error, 2)) <= 2 * math.sqrt(largest) * noise
    # Rows below the floor are zero: there are no more than directions.
    assert int(found.numbers[4:].any(1).sum()) == rank


def test_the_diagonal_is_that_of_the_features() -> None:
    features, labels = examples(50, 30, 30, 4)
    exact = within(LdaStatistics.from_features(features, labels, 4)).diagonal()
    torch.testing.assert_close(
        within(FeatureSummary.of(features, labels, 4).statistics()).diagonal(), exact, rtol=2**-7, atol=0
    )


def test_class_means_are_off_by_less_than_they_are_uncertain() -> None:
    features, labels = examples(300, 20, 20, 5)
    exact, found = LdaStatistics.from_features(features, labels, 5), FeatureSummary.of(features, labels, 5).statistics()
    assert torch.equal(found.counts, exact.counts)
    deviation = (within(exact).diagonal() / 295).sqrt() / math.sqrt(60)
    error = (found.sums - exact.sums).abs() / 60
    assert float((error / deviation).max()) <= 0.26


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.integers(0, 99), st.sampled_from([1e-20, 1.0, 1e5])
)
def test_every_summary_is_one_of_real_features(count: int, width: int, classes: int, seed: int, scale: float) -> None:
    """From one example on, of any size: no negative eigenvalue, counts as they are, nothing that is not finite."""
    features, labels = examples(count, width, width, classes, seed)
    found = FeatureSummary.of((scale * features).float(), labels, classes)
    assert torch.equal(found.numbers, found.numbers.round())
    assert torch.equal(found.scales.bfloat16().double(), found.scales)
    statistics = found.statistics()
    assert statistics.counts.sum() == count
    assert bool(torch.isfinite(statistics.moment).all())
    least = float(torch.linalg.eigvalsh(within(statistics))[0])
    assert least >= -1e-9 * float(statistics.moment.trace())
    weight, bias = solve(statistics)
    assert bool(torch.isfinite(weight).all() & torch.isfinite(bias).all())


def test_one_example_is_its_own_mean() -> None:
    features = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    statistics = FeatureSummary.of(features, torch.tensor([2]), 3).statistics()
    assert statistics.counts.tolist() == [0, 0, 1]
    error = (statistics.sums[2] - features[0]).abs().max()
    assert float(error) <= float(features.abs().max()) / 64
    assert float(within(statistics).abs().max()) < 1e-9


def test_the_step_follows_what_examples_say_about_small_directions() -> None:
    """All directions alike and few examples: the identity is the best guess. Many examples of directions of which most
    are small: they are known, and worth keeping."""
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(40, 100, generator=generator).double()
    steep = torch.randn(2000, 20, generator=generator).double() @ torch.randn(20, 20, generator=generator).double()
    steep = steep @ torch.diag(10.0 ** -torch.linspace(0, 2, 20)).double() @ torch.ones(20, 20).double().tril()
    found = []
    for features in (alike, steep):
        scaled = (features - features.mean(0)) / (features - features.mean(0)).square().sum(0).sqrt()
        eigenvalues = torch.linalg.svdvals(scaled).square()
        found.append(likely_shrinkage(eigenvalues, len(features) - 1, features.shape[1]))
    assert found[0] > 0.5
    assert found[1] < 0.01


def test_the_shrinkage_is_the_one_under_which_new_examples_are_likely() -> None:
    """The largest likelihood of examples that the covariance has not seen, of a known distribution."""
    generator = torch.Generator().manual_seed(3)
    mixing = torch.randn(12, 12, generator=generator).double()
    seen, new = (torch.randn(count, 12, generator=generator).double() @ mixing for count in (30, 5000))
    deviations = seen.square().mean(0).sqrt()
    covariance, new = (seen / deviations).T @ (seen / deviations) / 30, new / deviations

    def surprise(shrinkage: float) -> float:
        shrunk = (1 - shrinkage) * covariance + shrinkage * torch.eye(12).double()
        return float(torch.logdet(shrunk) + (new @ torch.linalg.inv(shrunk) * new).sum(1).mean())

    chosen = likely_shrinkage(torch.linalg.eigvalsh(covariance), 30, 12)
    best = min(surprise(10.0 ** (-power / 8)) for power in range(25))
    assert surprise(chosen) <= best + 0.2


def test_floors_have_bounds() -> None:
    for features in (torch.randn(500, 4).double(), torch.randn(3, 50).double()):
        centred = features - features.mean(0)
        _, floor = factors(centred / centred.square().sum(0).sqrt(), len(features) - 1)
        assert LEAST_FLOOR <= floor <= MOST_FLOOR


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_client_with_hardly_more_examples_than_features_fits_as_good_a_head(seed: int) -> None:
    """What rounding removes of a small direction must not look like a direction without variation."""
    width, count, classes = 200, 250, 4
    generator = torch.Generator().manual_seed(seed)
    spectrum = 10.0 ** (-1.2 * torch.arange(width) / width)
    mixing = torch.linalg.qr(torch.randn(width, width, generator=generator))[0] * spectrum[:, None]
    means = torch.randn(classes, width, generator=generator) / 4

    def draw(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(count) % classes
        return (torch.randn(count, width, generator=generator) + means[labels]) @ mixing + 3, labels

    features, labels = draw(count)
    test, truth = draw(2000)

    def accuracy(statistics: LdaStatistics) -> float:
        weight, bias = solve(statistics)
        return float(((test @ weight.T + bias).argmax(1) == truth).float().mean())

    exact = accuracy(LdaStatistics.from_features(features, labels, classes))
    assert exact > 0.8
    assert accuracy(FeatureSummary.of(features, labels, classes).statistics()) > exact - 0.02
