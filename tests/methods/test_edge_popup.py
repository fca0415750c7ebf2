"""Edge-popup: exactly the best-scored share of every tensor, against an oracle, a plain loop and numbers by hand.

That rounds equal epochs, and that nobody's examples change nothing, is tested with its sibling in `test_supermask`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from subbit.core.errors import ConfigError, ModelError
from subbit.core.randomness import derive_key
from subbit.data.batches import batches
from subbit.models import Template
from subbit.models.popup import TopMask, kept_count, largest
from tests.methods.test_supermask import EXAMPLES, alone, trained_scores
from tests.problems import digits_problem, mlp, settings


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_exactly_so_many_are_kept_and_ties_go_to_the_lower_index(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values)))
    magnitudes = np.array(values, np.float32)
    expected = np.zeros(len(values), bool)
    expected[np.argsort(-magnitudes, kind="stable")[:count]] = True
    assert np.array_equal(largest(magnitudes, count), expected)


def test_every_tensor_keeps_its_own_share_by_hand() -> None:
    """Half of (1, -3, 2, 0) are the places 1 and 2; of three equal scores round(1.5) = 2, the first two. All scores of
    the second tensor are larger than those of the first, and win nothing from it."""
    template = Template(("a", "b"), ((2, 2), (3,)))
    mask, weights = TopMask(torch.arange(1.0, 8.0), template, 0.5), torch.empty(7)
    scores = torch.tensor([1.0, -3.0, 2.0, 0.0, 9.0, -9.0, 9.0])
    mask.write(scores, weights, 0)
    assert weights.tolist() == [0.0, 2.0, 3.0, 0.0, 5.0, 6.0, 0.0]
    assert [kept_count(count, 0.01) for count in (1, 40, 160)] == [1, 1, 2]


def test_the_gradient_moves_the_magnitude() -> None:
    """dL/dm = g w0 goes to |s|. With g w0 = -6 the loss wants the weight: descent raises |s| on either side of 0."""
    mask = TopMask(torch.tensor([2.0, 2.0, 2.0]), Template(("a",), ((3,),)), 0.5)
    scores, gradient = torch.tensor([0.5, -0.5, 0.0]), torch.empty(3)
    mask.pull_back(torch.full((3,), -3.0), scores, gradient)
    assert gradient.tolist() == [-6.0, 6.0, -6.0]
    assert (scores - 0.01 * gradient).abs().tolist() == pytest.approx([0.56, 0.56, 0.06])


class _Subnetwork(torch.autograd.Function):
    """The mask of the larger half, the identity backwards: `abs` outside of it is left to autograd."""

    @staticmethod
    def forward(context: Any, magnitudes: Tensor) -> Tensor:
        order = magnitudes.flatten().sort(descending=True, stable=True).indices
        mask = torch.zeros(magnitudes.numel())
        mask[order[: magnitudes.numel() // 2]] = 1.0
        return mask.view(magnitudes.shape)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient


@pytest.mark.parametrize("rounds", [4, 2])
def test_training_is_that_of_a_plain_loop(rounds: int) -> None:
    """SGD with momentum, weight decay and torch's own cosine schedule, stepped once per epoch, for four epochs."""
    found = trained_scores("edge-popup", rounds=rounds, epochs=4 // rounds, batch_size=32, weights="keep")
    start = torch.from_numpy(alone("edge-popup").method("main").start()["scores"])
    data, network = digits_problem().train.select(np.arange(EXAMPLES)), mlp()
    frozen = [network[2].weight.detach().clone(), network[4].weight.detach().clone()]
    scores = [
        part.view(weight.shape).clone().requires_grad_()
        for part, weight in zip(start.split([64 * 16, 16 * 10]), frozen, strict=True)
    ]
    optimizer = torch.optim.SGD(scores, lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    for epoch in range(4):
        for chosen in batches(EXAMPLES, 32, derive_key(0, "batches", epoch, 0, 0)):
            batch = data.select(chosen)
            first, second = (
                weight * _Subnetwork.apply(score.abs()) for score, weight in zip(scores, frozen, strict=True)
            )
            hidden = functional.relu(functional.linear(batch.inputs.flatten(1) / 255, first, network[2].bias))
            loss = functional.cross_entropy(functional.linear(hidden, second, network[4].bias), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    expected = torch.cat([score.detach().flatten() for score in scores])
    assert (expected - start).abs().max() > 1e-3
    assert found == pytest.approx(expected.numpy(), abs=1e-6)


def test_initial_scores_are_uniform_within_one_over_the_root_of_the_fan_in() -> None:
    """Fan-in 64: within 1/8. The mean square is a^2 / 3, and over n places it has the standard deviation
    a^2 sqrt(4 / (45 n)): five of them are allowed."""
    scores = alone("edge-popup").method("main").start()["scores"][: 64 * 16]
    assert scores.dtype == np.float32
    assert np.abs(scores).max() <= 1 / 8
    assert np.mean(scores**2) * 64 == pytest.approx(1 / 3, abs=5 * (4 / (45 * 1024)) ** 0.5)


@pytest.mark.parametrize(
    ("weights", "size"), [("auto", (2 / 64) ** 0.5), ("signed", (2 / 64) ** 0.5), ("signed-scaled", (2 / 16) ** 0.5)]
)
def test_the_frozen_weights_of_a_random_network_have_one_size(weights: str, size: float) -> None:
    """Fan-in 64, and a quarter of it: sqrt(2/64) = .1768, sqrt(2/16) = .3536."""
    method = alone("edge-popup", weights=weights, keep=0.25).method("main")
    method.write_network(method.start(), "subnetwork", 0)
    kept = method.task.flat.weights[: 64 * 16]
    assert int(torch.count_nonzero(kept)) == 256
    assert kept[kept != 0].abs().tolist() == pytest.approx([size] * 256)
    assert torch.equal(kept.sign(), torch.where(kept == 0, 0.0, method.task.flat.initial[: 64 * 16].sign()))


def test_pretrained_weights_stay_as_they_are() -> None:
    from dataclasses import replace

    from subbit.runtime.workplace import Workplace

    problem = replace(digits_problem(), pretrained=True)
    method = Workplace(problem, settings(method="edge-popup", select="2.weight", keep=1.0)).method("main")
    method.write_network(method.start(), "subnetwork", 0)
    assert torch.equal(method.task.flat.weights, method.task.flat.initial)


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="not numbers"):
        largest(np.array([1.0, np.nan, 0.5], np.float32), 2)


@pytest.mark.parametrize("keep", [0.0, 1.5])
def test_a_share_that_cannot_be_is_refused(keep: float) -> None:
    with pytest.raises(ConfigError, match="keep"):
        settings(method="edge-popup", keep=keep)
    with pytest.raises(ModelError, match="keep"):
        TopMask(torch.ones(3), Template(("a",), ((3,),)), keep)
