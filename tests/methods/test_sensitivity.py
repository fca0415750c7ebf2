"""The diagonal Fisher information against its definition, and the choice of exactly k places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from subbit.codecs.topk import TopK
from subbit.core.errors import ConfigError
from subbit.data import Examples
from subbit.local.training import TrainingError
from subbit.methods.gradmask_masks import Scene, keep_exactly, places_of_share
from subbit.methods.sensitivity import LeastSensitive
from subbit.models import FlatModel
from tests.problems import digits_problem, mlp


def measured(module: nn.Module, data: Examples, kept: Any = None, batch_size: int = 64, **values: Any) -> np.ndarray:
    flat = FlatModel(module, "all")
    kept = np.ones(flat.weights.numel(), dtype=np.bool_) if kept is None else kept
    scene = Scene(flat, flat.initial.numpy(), 0.3, key=3, batch_size=batch_size, data=data)
    return LeastSensitive(**values).measure(scene, kept)


def logistic() -> nn.Module:
    """Two classes, no weights yet: p = 1/2 whatever the input, and d log p(0) / dW = (x / 2, -x / 2)."""
    module = nn.Sequential(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.zero_()
    return module


POINTS = Examples(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]))


def test_per_sample_by_hand() -> None:
    """Gradients of log p of the two points: (1, 0, -1, 0) and (0, -2, 0, 2); mean of the squares (1, 4, 1, 4) / 2."""
    assert measured(logistic(), POINTS).tolist() == [0.5, 2.0, 0.5, 2.0]


def test_in_a_batch_gradients_cancel_before_they_are_squared() -> None:
    """The mean gradient is (1, -2, -1, 2) / 2, its square (1, 4, 1, 4) / 4: half of the other, and 0 for opposites."""
    assert measured(logistic(), POINTS, fisher="batch", batch_size=2).tolist() == [0.25, 1.0, 0.25, 1.0]
    opposites = Examples(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    assert measured(logistic(), opposites, fisher="batch", batch_size=2).tolist() == [0.0] * 4
    assert measured(logistic(), opposites).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_batches_of_one_are_samples() -> None:
    data = digits_problem().client_data(0)
    assert np.array_equal(measured(mlp(), data), measured(mlp(), data, fisher="batch", batch_size=1))


def test_it_equals_vectorised_per_sample_gradients() -> None:
    module, data = mlp(), digits_problem().client_data(1)
    parameters = {name: value.detach().clone() for name, value in module.named_parameters()}

    def loss(values: Any, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(module, values, (one[None],)), label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, data.inputs, data.labels)
    oracle = torch.cat([(gradients[name].double() ** 2).mean(dim=0).flatten() for name in parameters])
    assert np.allclose(measured(module, data), oracle.numpy(), rtol=1e-4, atol=1e-12)


def test_labels_of_the_model_are_drawn_from_it() -> None:
    """A sure model draws its own label and has almost no gradient; the true labels, all wrong, have a large one."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[20.0], [-20.0]]))
    data = Examples(torch.ones(8, 1), torch.ones(8, dtype=torch.int64))
    assert measured(module, data, fisher_labels="model").max() < 1e-12
    assert measured(module, data, fisher_labels="true").min() == pytest.approx(1)


def test_labels_of_the_model_average_to_the_fisher_information() -> None:
    """p = 1/2 and x = 2: both labels give the square 1, so any draw gives the expectation."""
    data = Examples(torch.tensor([[2.0, 0.0]] * 5), torch.zeros(5, dtype=torch.int64))
    assert measured(logistic(), data, fisher_labels="model").tolist() == [1.0, 0.0, 1.0, 0.0]


def test_what_is_not_kept_is_damped() -> None:
    """Outputs (a, 0): the sensitivity to a is p(1)^2 with p(1) = 1 / (1 + e^a), here at a and at a / 10."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[3.0], [0.0]]))
    data = Examples(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    for kept, value in (([True, True], 3.0), ([False, True], 0.3)):
        expected = (1 / (1 + np.exp(value))) ** 2
        assert measured(module, data, np.array(kept))[0] == pytest.approx(expected, rel=1e-5)


@given(
    scores=st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0]), min_size=1, max_size=40),
    share=st.floats(0.01, 1),
    largest=st.booleans(),
)
def test_exactly_k_are_chosen_as_by_a_stable_sort(scores: list[float], share: float, largest: bool) -> None:
    values = np.array(scores)
    count = places_of_share(values.size, share)
    assert count == TopK(share).count(values.size)
    kept = keep_exactly(values, count, largest)
    ranked = np.argsort(-values if largest else values, kind="stable")
    assert np.flatnonzero(kept).tolist() == sorted(ranked[:count].tolist())


def test_among_equals_the_earlier_ones_are_chosen_both_ways() -> None:
    for largest in (True, False):
        assert keep_exactly(np.zeros(5), 2, largest).tolist() == [True, True, False, False, False]


def test_several_rounds_narrow_the_choice_and_never_bring_a_place_back() -> None:
    """Shares 0.25^(1/2) = 1/2 and 1/4 of 1210 places: 605 and 302.5, rounded up."""
    module, data = mlp(), digits_problem().client_data(0)
    flat, calibration = FlatModel(module, "all"), LeastSensitive(calibration_rounds=2)
    scene = Scene(flat, flat.initial.numpy(), 0.25, key=0, data=data)
    once = keep_exactly(calibration.measure(scene, np.ones(1210, dtype=np.bool_)), 605, largest=False)
    twice = calibration.choose(scene)
    assert np.count_nonzero(twice) == 303
    assert not (twice & ~once).any()
    assert [calibration.count_after(1210, 0.25, done) for done in (0, 1, 2)] == [1210, 605, 303]


def test_examples_bound_the_passes() -> None:
    data = digits_problem().client_data(0)
    few = measured(mlp(), data, calibration_examples=5)
    assert not np.array_equal(few, measured(mlp(), data))
    assert np.array_equal(few, measured(mlp(), data, calibration_examples=5))


def test_values_that_are_not_numbers_fail_the_client() -> None:
    data = Examples(torch.tensor([[float("nan"), 0.0]]), torch.tensor([0]))
    with pytest.raises(TrainingError, match="calibration"):
        measured(logistic(), data)


@pytest.mark.parametrize("values", [{"calibration_examples": 0}, {"calibration_rounds": 0}, {"damping": 1.5}])
def test_values_out_of_range_are_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        LeastSensitive(**values)
