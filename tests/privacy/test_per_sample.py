"""Gradients of single examples, their clipping, and the noise on their sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.data.examples import Examples
from subbit.data.form import Form, TensorForm
from subbit.methods.method import Task, Turn
from subbit.models import FlatModel
from subbit.privacy import per_sample
from subbit.privacy.mechanism import GaussianMechanism
from subbit.privacy.per_sample import PerSampleGradients, add_clipped
from subbit.privacy.privacy import PrivacyPerStep
from tests.problems import MODULES, constant_examples, digits_problem

NOBODY = Examples(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))


def gradient_of_one(flat: FlatModel, batch: Examples, position: int) -> Tensor:
    """The oracle: an ordinary backward pass with one example in the batch."""
    flat.zero_gradient()
    part = slice(position, position + 1)
    functional.cross_entropy(flat.module(batch.inputs[part]), batch.labels[part]).backward()  # type: ignore[no-untyped-call]
    return flat.gradient.clone()


@pytest.mark.parametrize("kind", MODULES)
def test_they_are_those_of_a_loop_over_single_examples(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = FlatModel(MODULES[kind](), "all")
    flat.evaluation_mode()  # Without dropout, which draws anew in every pass.
    batch = digits_problem().train.select(np.arange(5))
    each = torch.stack([gradient_of_one(flat, batch, position) for position in range(5)])
    found = torch.cat([gradient.flatten(1) for gradient in PerSampleGradients(flat).of_each(batch)], dim=1)
    torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-6)
    # A few examples at a time change nothing, and a bound in the midst of the norms clips some of them.
    monkeypatch.setattr(per_sample, "VALUES_AT_ONCE", 2 * flat.template.size)
    bound = float(each.norm(dim=1).median())
    by_hand = sum(gradient * min(1.0, bound / float(gradient.norm())) for gradient in each)
    torch.testing.assert_close(PerSampleGradients(flat).clipped_sum(batch, bound), by_hand, rtol=1e-4, atol=1e-6)


def test_clipping_by_hand() -> None:
    """Example 0 has the gradient (3, 4) over two tensors, norm 5; example 1 (0.3, 0.4), norm 0.5; example 2 none.

    With C = 1: (3, 4) / 5 + (0.3, 0.4) + 0 = (0.9, 1.2).
    """
    totals = [torch.zeros(1), torch.zeros(1, 1)]
    add_clipped(totals, [torch.tensor([[3.0], [0.3], [0.0]]), torch.tensor([[[4.0]], [[0.4]], [[0.0]]])], 1.0)
    assert totals[0].item() == pytest.approx(0.9)
    assert totals[1].item() == pytest.approx(1.2)


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf])
def test_an_example_whose_gradient_is_not_finite_counts_as_zero(hostile: float) -> None:
    totals = [torch.zeros(2)]
    add_clipped(totals, [torch.tensor([[hostile, 1.0], [0.5, 0.0]])], 1.0)
    assert totals[0].tolist() == [0.5, 0.0]


def test_a_huge_gradient_is_clipped_and_not_lost() -> None:
    """1e30 squared overflows float32."""
    totals = [torch.zeros(1)]
    add_clipped(totals, [torch.tensor([[1e30]])], 2.0)
    assert totals[0].item() == pytest.approx(2.0)


def make_mechanism(flat: FlatModel, **values: object) -> GaussianMechanism:
    form = Form((("", TensorForm(torch.float32, (4,))),), TensorForm(torch.int64, ()))
    task = Task(flat, 10, 0, 1, 1, 1, False, form)
    return GaussianMechanism(PrivacyPerStep(**values), 10, 1, task)  # type: ignore[arg-type]


def test_noise_has_the_mean_and_the_deviation_it_should_have() -> None:
    """Over 50,000 places the mean of N(0, s) lies within 5 s / sqrt(50000), its deviation within 5 s / sqrt(100000).

    s = sigma C / (q n): 40 examples and batches of 10 give q n = 10.
    """
    flat = FlatModel(nn.Linear(4, 10_000), "all")
    mechanism = make_mechanism(flat, max_gradient_norm=3.0)
    step = mechanism.turn(40, Turn(0, 0, {}))
    step(NOBODY)  # An empty batch is noise alone.
    noise, deviation = flat.gradient.double().clone(), 0.755 * 3.0 / 10
    places = noise.numel()
    assert places == 50_000
    assert abs(float(noise.mean())) < 5 * deviation / math.sqrt(places)
    assert float(noise.std()) == pytest.approx(deviation, abs=5 * deviation / math.sqrt(2 * places) + 1e-3 * deviation)
    # Every step, client and round draws its own; the same turn draws the same.
    step(NOBODY)
    assert not torch.equal(flat.gradient.double(), noise)
    for turn, same in ((Turn(0, 0, {}), True), (Turn(0, 1, {}), False), (Turn(1, 0, {}), False)):
        mechanism.turn(40, turn)(NOBODY)
        assert torch.equal(flat.gradient.double(), noise) is same


def test_without_a_seed_no_turn_can_be_repeated() -> None:
    flat = FlatModel(nn.Linear(4, 10), "all")
    mechanism = make_mechanism(flat, noise_source="system")
    mechanism.turn(40, Turn(0, 0, {}))(NOBODY)
    first = flat.gradient.clone()
    mechanism.turn(40, Turn(0, 0, {}))(NOBODY)
    assert not torch.equal(flat.gradient, first)


def test_one_example_moves_a_step_by_the_bound_at_most() -> None:
    """What all of the accounting rests on: the same batch with and without an example, under the same noise."""
    flat = FlatModel(nn.Linear(4, 10), "all")
    flat.weights.zero_()  # All classes are equally likely, so that no example is classified with a gradient of zero.
    mechanism = make_mechanism(flat, max_gradient_norm=0.5)
    turn = Turn(0, 0, {})
    mechanism.turn(40, turn)(constant_examples(100.0, [1, 2]))
    two = flat.gradient.clone()
    mechanism.turn(40, turn)(constant_examples(100.0, [1]))
    assert float((two - flat.gradient).norm()) * 10 == pytest.approx(0.5, rel=1e-4)
