import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator
from subbit.models.head_start import ABSENT_MARGIN, LdaStatistics, kaiming_, solve


def random_features(count, width, classes, seed):
    generator = torch_generator(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return torch.randn(count, width, generator=generator) + labels[:, None], labels


def test_discriminant_by_hand():
    """Class 0 at {0, 2}, class 1 at {4, 6}: means 1 and 5, variance within classes 1, priors 1/2. In one dimension the
    scaled identity is the variance itself, so no shrinkage changes it. All features have the mean 3: weight = mean - 3,
    bias = -(mean^2 - 9) / 2 + log 1/2; the two lines cross at 3."""
    features = torch.tensor([[0.0], [2.0], [4.0], [6.0]])
    statistics = LdaStatistics.from_features(features, torch.tensor([0, 0, 1, 1]), 2)
    for shrinkage in (0.1, 1.0):
        weight, bias = solve(statistics, shrinkage, 1.0)
        torch.testing.assert_close(weight, torch.tensor([[-2.0], [2.0]]))
        torch.testing.assert_close(bias, torch.tensor([4.0, -8.0]) + math.log(0.5))
        logits = weight @ torch.tensor([3.0]) + bias
        assert logits[0].item() == pytest.approx(logits[1].item(), abs=1e-5)


@pytest.mark.parametrize("shrinkage", [0.1, 0.5])
def test_same_predictions_as_scikit_learn_on_digits(shrinkage):
    from sklearn.datasets import load_digits
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    inputs, labels = load_digits(return_X_y=True)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(inputs[:1000], labels[:1000])
    features = torch.from_numpy(inputs).float()
    vectors = [
        LdaStatistics.from_features(features[part], torch.from_numpy(labels)[part], 10).to_vector()
        for part in (slice(0, 300), slice(300, 301), slice(301, 301), slice(301, 1000))
    ]
    weight, bias = solve(LdaStatistics.from_vector(torch.stack(vectors).sum(0), 10, 64), shrinkage, 1.0)
    theirs = torch.from_numpy(reference.coef_)
    common = torch.from_numpy(np.bincount(labels[:1000])).double() @ theirs / 1000  # Theirs has this in every class.
    torch.testing.assert_close(weight.double(), theirs - common, rtol=1e-3, atol=1e-3)
    predictions = (features @ weight.T + bias).argmax(1).numpy()
    assert np.array_equal(predictions, reference.predict(inputs))


@given(count=st.integers(0, 30), cut=st.integers(0, 30), width=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_vectors_of_clients_add_up_to_the_vector_of_all(count, cut, width, seed):
    features, labels = random_features(count, width, 3, seed)
    cut = min(cut, count)
    parts = [LdaStatistics.from_features(features[part], labels[part], 3) for part in (slice(cut), slice(cut, None))]
    pooled = LdaStatistics.from_features(features, labels, 3)
    assert pooled.to_vector().shape == (LdaStatistics.vector_size(3, width),)
    assert pooled.to_vector().dtype == torch.float32
    torch.testing.assert_close(parts[0].to_vector() + parts[1].to_vector(), pooled.to_vector(), rtol=1e-5, atol=1e-4)


@given(width=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_vector_and_back(width, seed):
    statistics = LdaStatistics.from_features(*random_features(9, width, 4, seed), 4)
    vector = statistics.to_vector()
    again = LdaStatistics.from_vector(vector, 4, width)
    assert torch.equal(again.to_vector(), vector)
    torch.testing.assert_close(again.moment, statistics.moment, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(again.sums, statistics.sums, rtol=1e-6, atol=1e-6)


def test_a_factor_changes_nothing():
    """Whether a server sums the clients' vectors or averages them, the head is the same."""
    vector = LdaStatistics.from_features(*random_features(40, 3, 3, 1), 3).to_vector()
    for part, scaled in zip(
        solve(LdaStatistics.from_vector(vector, 3, 3), 0.1, 1.0),
        solve(LdaStatistics.from_vector(vector / 8, 3, 3), 0.1, 1.0),
        strict=True,
    ):
        torch.testing.assert_close(part, scaled, rtol=1e-4, atol=1e-4)


def test_absent_classes_are_never_predicted():
    features, labels = random_features(50, 4, 2, 2)
    weight, bias = solve(LdaStatistics.from_features(features, labels * 2, 4))
    assert not weight[[1, 3]].any()
    assert torch.isfinite(bias).all()
    assert bias[[1, 3]].tolist() == pytest.approx([bias[[0, 2]].min().item() - ABSENT_MARGIN] * 2)
    assert set((features @ weight.T + bias).argmax(1).tolist()) == {0, 2}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_examples_than_features(count):
    """The covariance is singular; with one example, or one per class, it is zero."""
    features = torch.randn(count, 20, generator=torch_generator(3))
    weight, bias = solve(LdaStatistics.from_features(features, torch.arange(count), count))
    assert torch.isfinite(weight).all()
    assert torch.isfinite(bias).all()
    assert (features @ weight.T + bias).argmax(1).tolist() == list(range(count))


def test_identical_zero_features():
    weight, bias = solve(LdaStatistics.from_features(torch.zeros(4, 3), torch.tensor([0, 0, 0, 1]), 2))
    assert not weight.any()
    torch.testing.assert_close(bias, torch.tensor([0.75, 0.25]).log())


def test_refusals():
    statistics = LdaStatistics(2, 3)
    with pytest.raises(ModelError, match="without one example"):
        solve(statistics)
    with pytest.raises(ModelError, match="above 0"):
        solve(statistics, 0.0)
    with pytest.raises(ModelError, match="0 to 1"):
        statistics.add(torch.zeros(1, 3), torch.tensor([2]))
    with pytest.raises(ModelError, match=r"needs \(2, 3\)"):
        statistics.add(torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ModelError, match=r"need \(14,\)"):
        LdaStatistics.from_vector(torch.zeros(13), 2, 3)
    for place, value in [(0, -1.0), (3, math.nan), (13, math.inf)]:
        hostile = torch.ones(14)
        hostile[place] = value
        with pytest.raises(ModelError, match="not finite, or negative"):
            solve(LdaStatistics.from_vector(hostile, 2, 3))


def test_kaiming_comes_from_its_key_alone():
    """Standard deviation sqrt(2 / 800) = 0.05, over 80,000 draws to within 5 * 0.05 / sqrt(160,000)."""
    state = torch.get_rng_state()
    first, second, other = (kaiming_(nn.Linear(800, 100), key) for key in (1, 1, 2))
    drawn = torch.get_rng_state()
    torch.set_rng_state(state)
    for _ in range(3):
        nn.Linear(800, 100)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)
    assert not first.bias.any()
    assert first.weight.std().item() == pytest.approx(0.05, abs=5 * 0.05 / 400)
