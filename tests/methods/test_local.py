"""Local training: schedules of the learning rate, clipping, an optimiser of the caller's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key, torch_generator
from subbit.local.blocked import BlockedAdam, BlockedSgd
from subbit.local.optimizers import Adam, Sgd
from subbit.local.training import Hooks, Local, TrainingError, train_locally
from subbit.local.vector_blocks import BLOCK, Blocks
from subbit.methods.method import Turn
from subbit.models.flat import FlatModel
from subbit.models.reparametrisation import Identity
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def one_step(round_number: int = 0, **values: Any) -> Tensor:
    """The change of the weights in one SGD step of learning rate 1 over all of a client's data."""
    problem = digits_problem()
    task = Workplace(problem, settings(method="fedavg", rounds=8)).method("main").task
    chosen = Local(optimizer=Sgd(momentum=0.0), learning_rate=1.0, batch_size=1000, **values)
    trained = task.flat.initial.clone()
    train_locally(task, chosen, Identity(trained.numel()), trained, problem.client_data(0), Turn(round_number, 0, {}))
    return trained - task.flat.initial


def test_a_clipped_gradient_keeps_its_direction_and_has_the_norm_of_the_bound() -> None:
    free = one_step()
    bound = 0.1 * float(free.norm())
    clipped = one_step(gradient_clip=bound)
    assert float(clipped.norm()) == pytest.approx(bound, rel=1e-4)
    assert float(torch.dot(clipped, free) / (clipped.norm() * free.norm())) == pytest.approx(1, abs=1e-5)
    assert torch.equal(one_step(gradient_clip=1e6), free)


def test_the_first_round_of_a_warm_up_over_three_takes_a_quarter_of_the_step() -> None:
    """(0 + 1) / (3 + 1) = 1/4; from round 3 on the whole step."""
    free = one_step()
    assert np.allclose(one_step(warmup_rounds=3), free / 4, atol=1e-7)
    assert torch.equal(one_step(round_number=3, warmup_rounds=3), one_step(round_number=3))


def test_a_cosine_starts_whole_is_half_in_the_middle_and_never_zero() -> None:
    cosine = Local(schedule="cosine")
    assert cosine.rate_factor(0, 8) == 1
    assert cosine.rate_factor(4, 8) == pytest.approx(0.5)
    assert cosine.rate_factor(7, 8) == pytest.approx((1 + math.cos(7 * math.pi / 8)) / 2)
    assert cosine.rate_factor(7, 8) > 0


def test_an_optimiser_of_the_caller_is_the_one_that_steps() -> None:
    problem = digits_problem()
    task = Workplace(problem, settings(method="fedavg")).method("main").task
    trained = task.flat.initial.clone()
    still = torch.optim.SGD([trained], lr=0.0)
    chosen = Local(learning_rate=1.0)
    train_locally(
        task, chosen, Identity(trained.numel()), trained, problem.client_data(0), Turn(0, 0, {}), Hooks(optimizer=still)
    )
    assert torch.equal(trained, task.flat.initial)


@pytest.mark.parametrize("value", [{"gradient_clip": 0.0}, {"gradient_clip": -1.0}, {"warmup_rounds": -1}])
def test_values_out_of_range_are_refused_by_name(value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(value))):
        Local(**value)


SIZES = [1, 7, 1000, BLOCK - 1, BLOCK, 2 * BLOCK + 5]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adam_in_blocks_is_torchs_bit_for_bit(size: int, weight_decay: float) -> None:
    both = torch.linspace(-3, 3, size), torch.linspace(-3, 3, size)
    ours = BlockedAdam(both[0], 0.1, (0.9, 0.999), 1e-8, weight_decay)
    check_equal(both, ours, torch.optim.Adam([both[1]], 0.1, weight_decay=weight_decay))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_in_blocks_is_torchs_bit_for_bit(size: int, weight_decay: float, momentum: float, nesterov: bool) -> None:
    both = torch.linspace(-3, 3, size), torch.linspace(-3, 3, size)
    ours = BlockedSgd(both[0], 0.1, momentum, weight_decay, nesterov)
    torchs = torch.optim.SGD([both[1]], 0.1, momentum, weight_decay=weight_decay, nesterov=nesterov)
    check_equal(both, ours, torchs)


@pytest.mark.parametrize(
    ("make", "values"),
    [(Adam, {"betas": (2.0, 0.9)}), (Adam, {"eps": -1.0}), (Sgd, {"momentum": 0.0, "nesterov": True})],
)
def test_options_that_torch_would_refuse_in_the_turn_are_refused_at_once(make: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(values)[-1]):
        make(**values)


def in_pieces(gradient: Tensor) -> list[Tensor]:
    """A vector, a matrix whose memory is not in order, and a last piece that may be long or empty."""
    third = len(gradient) // 3
    matrix = gradient[third : third + third // 2 * 2].reshape(2, -1)
    return [gradient[:third], matrix.t().contiguous().t(), gradient[third + third // 2 * 2 :]]


def test_short_pieces_share_a_block_and_long_ones_are_parted() -> None:
    vector, pieces = torch.zeros(37), [torch.zeros(size) for size in (2, 3, 4, 25, 3)]
    blocks = list(Blocks(10).of((vector,), pieces))
    assert [block.pieces for block, _ in blocks] == [slice(0, 3), *[slice(3, 4)] * 3, slice(4, 5)]
    assert [len(block.vectors[0]) for block, _ in blocks] == [9, 10, 10, 5, 3]
    for block, gradient in blocks:
        block.vectors[0].add_(1)
        assert [part.shape for part in gradient] == [view.shape for view in block.views[0]]
    assert torch.equal(vector, torch.ones(37))


def check_equal(both: tuple[Tensor, Tensor], ours: Any, torchs: torch.optim.Optimizer) -> None:
    """Five steps with the same gradients, of very different sizes."""
    size = both[0].numel()
    scales = torch.logspace(-6, 0, size)
    for step in range(5):
        gradient = torch.randn(size, generator=torch_generator(step)) * scales
        both[1].grad = gradient.clone()
        torchs.step()
        if step % 2:
            both[0].grad = gradient.clone()
            ours.step()
        else:
            ours.step(in_pieces(gradient))
    assert torch.equal(*both)
    kept, expected = ours.state[both[0]], torchs.state[both[1]]
    assert set(kept) == set(expected)
    assert all(torch.equal(kept[name], expected[name]) for name in kept)


def test_weights_trained_in_place_are_those_of_the_plain_loop_and_the_model_has_its_own_buffers_again() -> None:
    problem = digits_problem()
    task = Workplace(problem, settings(method="fedavg")).method("main").task
    flat, data = task.flat, problem.client_data(0)
    own = flat.weights.data_ptr(), flat.gradient.data_ptr()
    trained, by_hand = flat.initial.clone(), flat.initial.clone()
    chosen = Local(optimizer=Sgd(momentum=0.0), learning_rate=0.1, batch_size=8)
    train_locally(task, chosen, Identity(trained.numel()), trained, data, Turn(0, 0, {}))
    assert (flat.weights.data_ptr(), flat.gradient.data_ptr()) == own
    assert torch.equal(flat.weights, trained)
    for batch in chosen.draw_batches(len(data), derive_key(task.seed, "batches", 0, 0, 0)):
        flat.weights.copy_(by_hand)
        flat.zero_gradient()
        part = data.select(batch)
        torch.nn.functional.cross_entropy(flat.module(part.inputs), part.labels).backward()
        by_hand -= 0.1 * flat.gradient
    assert torch.allclose(trained, by_hand, atol=1e-6)


def test_a_turn_that_fails_leaves_the_model_its_own_buffers() -> None:
    problem = digits_problem()
    task = Workplace(problem, settings(method="fedavg")).method("main").task
    own, trained = task.flat.weights.data_ptr(), torch.full_like(task.flat.initial, torch.nan)
    with pytest.raises(TrainingError, match="the loss is nan"):
        train_locally(task, Local(), Identity(trained.numel()), trained, problem.client_data(0), Turn(0, 0, {}))
    assert task.flat.weights.data_ptr() == own


def test_the_gradient_of_a_loss_replaces_the_last_one_also_where_a_parameter_is_not_used() -> None:
    module = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "unused": torch.nn.Linear(2, 1)})
    flat = FlatModel(module, "all")
    flat.gradient.fill_(7.0)
    flat.backward(module["used"](torch.tensor([[2.0, 3.0]])).sum())
    by_name = dict(zip(flat.template.names, flat.template.views(flat.gradient), strict=True))
    assert by_name["used.weight"].tolist() == [[2.0, 3.0]]
    assert by_name["used.bias"].tolist() == [1.0]
    assert not by_name["unused.weight"].any()
    assert module["used"].weight.grad is not None
    assert module["used"].weight.grad.data_ptr() == by_name["used.weight"].data_ptr()
