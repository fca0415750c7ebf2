"""What is predicted of a discriminant from its statistics, against new examples of known distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from subbit.models.discriminant import SHRINKAGES, TAILS, Separation, Spectrum
from subbit.models.head_start import LdaStatistics, solve

CLASSES, FRESH = 4, 20_000


class World:
    """Normal classes with one covariance of many scales; means that matter in some directions."""

    def __init__(self, width: int, distance: float, seed: int) -> None:
        self.draws = np.random.default_rng(seed)
        rotation, _ = np.linalg.qr(self.draws.normal(size=(width, width)))
        self.root = rotation * np.geomspace(1, 0.05, width)
        self.means = self.draws.normal(size=(CLASSES, width)) @ self.root.T * distance / math.sqrt(width)

    def examples(self, count: int) -> tuple[Tensor, Tensor]:
        labels = self.draws.integers(0, CLASSES, count)
        rows = self.means[labels] + self.draws.normal(size=(count, len(self.root))) @ self.root.T
        return torch.from_numpy(rows).float(), torch.from_numpy(labels)


def spectrum(inputs: Tensor, labels: Tensor) -> tuple[Spectrum, LdaStatistics]:
    statistics = LdaStatistics.from_features(inputs, labels, CLASSES)
    means = statistics.sums / statistics.counts[:, None]
    within = (statistics.moment - statistics.between) / statistics.counts.sum()
    eigenvalues, vectors = torch.linalg.eigh(within)
    return Spectrum.of(eigenvalues, float(eigenvalues.mean()), means @ vectors, statistics.counts), statistics


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels).float().mean())


WORLDS = [(10, 400), (60, 90), (60, 400), (200, 120), (200, 1000)]


@pytest.mark.parametrize(("width", "count"), WORLDS)
@pytest.mark.parametrize("shrinkage", [0.03, 0.3, 0.9])
def test_the_predicted_differences_of_logits_are_those_of_new_examples(
    width: int, count: int, shrinkage: float
) -> None:
    world = World(width, 4.0, seed=width + count)
    (inputs, labels), (fresh, truth) = world.examples(count), world.examples(FRESH)
    found, statistics = spectrum(inputs, labels)
    predicted = found.separation(shrinkage)
    weight, bias = solve(statistics, shrinkage, 1.0)
    logits = (fresh @ weight.T + bias).double() - torch.log(statistics.counts / count)
    signal = variance = 0.0
    for one in range(CLASSES):
        for other in range(CLASSES):
            if one != other:
                differences = (logits[:, one] - logits[:, other])[truth == one]
                pairs = float(statistics.counts[one] * statistics.counts[other]) / 2
                signal += 2 * pairs * float(differences.mean())
                variance += pairs * float(differences.var())
    assert predicted.signal == pytest.approx(signal, rel=0.25)
    assert predicted.variance == pytest.approx(variance, rel=0.25)


@pytest.mark.parametrize(("width", "count"), WORLDS)
def test_the_chosen_shrinkage_is_about_as_good_as_the_best_one(width: int, count: int) -> None:
    world = World(width, 4.0, seed=width)
    (inputs, labels), (fresh, truth) = world.examples(count), world.examples(FRESH)
    found, statistics = spectrum(inputs, labels)

    def score(shrinkage: float) -> float:
        weight, bias = solve(statistics, shrinkage)
        return accuracy(fresh @ weight.T + bias, truth)

    scores = {each: score(each) for each in SHRINKAGES}
    assert scores[found.best_shrinkage()] > max(scores.values()) - 0.015
    assert max(scores.values()) > min(scores.values()) + 0.02, "a choice that does not matter tests nothing"


@pytest.mark.parametrize(("width", "count"), WORLDS)
def test_the_temperature_is_the_best_one_for_normal_features(width: int, count: int) -> None:
    """But for the factor that allows for longer tails."""
    world = World(width, 4.0, seed=2 * width)
    (inputs, labels), (fresh, truth) = world.examples(count), world.examples(FRESH)
    weight, bias = solve(spectrum(inputs, labels)[1])
    logits = fresh @ weight.T + bias
    losses = {power: float(cross_entropy(logits * 2.0**power, truth)) for power in np.arange(-4, 5.5, 0.5)}
    assert abs(min(losses, key=lambda each: losses[each]) + math.log2(TAILS)) <= 0.5


def test_the_temperature_changes_no_prediction() -> None:
    inputs, labels = World(20, 3.0, seed=1).examples(300)
    statistics = LdaStatistics.from_features(inputs, labels, CLASSES)
    plain, warm = (solve(statistics, 0.1, each) for each in (1.0, 0.25))
    torch.testing.assert_close(warm[0], plain[0] / 4)
    torch.testing.assert_close(warm[1], plain[1] / 4)


def test_two_classes_on_a_line_by_hand() -> None:
    """Means -1 and 1, variance 1, ten examples each: n_c n_k d^2 = 400, one free direction of 18, q = 17/18; noise
    (1/q)(C - 1) n = 20 * 18/17."""
    counts = torch.tensor([10.0, 10.0], dtype=torch.float64)
    means = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    found = Spectrum.of(torch.ones(1, dtype=torch.float64), 1.0, means, counts)
    assert float(found.between) == pytest.approx(400)
    separation = found.separation(1e-12)
    assert separation.signal == pytest.approx(400 - 20 * 18 / 17)
    assert separation.variance == pytest.approx(400 * (18 / 17) ** 2)


def test_too_few_examples_predict_nothing_and_are_shrunk_more() -> None:
    """Forty examples lie in fewer directions than there are features, and little shrinkage leaves all of these free."""
    found, _ = spectrum(*World(60, 4.0, seed=1).examples(40))
    assert found.separation(0.001) == Separation(0.0, math.inf)
    assert found.best_shrinkage() > 0.1


def test_where_nothing_separates() -> None:
    """Classes with one mean: as much shrinkage as there is, and logits as they are."""
    found = Spectrum.of(torch.ones(3).double(), 1.0, torch.zeros(2, 3).double(), torch.tensor([5.0, 5.0]).double())
    assert found.best_shrinkage() == max(SHRINKAGES)
    assert found.separation(1.0).temperature == 1.0
    assert Separation(0.0, math.inf).quality == 0.0
    assert Separation(1e9, 1.0).temperature == 1.0
    assert 0 < Separation(1e-9, 1.0).temperature < 0.01


def test_one_class_and_one_example_are_fine() -> None:
    for counts in ([5], [1]):
        inputs = torch.randn(sum(counts), 6)
        weight, bias = solve(LdaStatistics.from_features(inputs, torch.zeros(sum(counts)).long(), 3))
        assert bool(torch.isfinite(weight).all() and torch.isfinite(bias).all())


def test_a_mean_of_all_features_leaves_no_trace_in_the_weights() -> None:
    """Features that vary by about 1 around 30: their mean would be most of each weight."""
    inputs, labels = World(8, 4.0, seed=2).examples(400)
    near, far = (solve(LdaStatistics.from_features(inputs + shift, labels, CLASSES)) for shift in (0.0, 30.0))
    torch.testing.assert_close(far[0], near[0], rtol=1e-3, atol=1e-4)
    assert float(near[0].mean(0).abs().max()) < 0.2 * float(near[0].abs().max())


def test_automatic_shrinkage_is_at_least_what_is_asked_for() -> None:
    statistics = LdaStatistics.from_features(*World(8, 4.0, seed=3).examples(4000), CLASSES)
    torch.testing.assert_close(solve(statistics, least=0.5), solve(statistics, 0.5))
    assert not torch.equal(solve(statistics)[0], solve(statistics, 0.5)[0])
