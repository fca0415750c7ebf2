"""Local training: schedules of the learning rate, clipping, an optimiser of the caller's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from subbit.core.errors import ConfigError
from subbit.local.optimizers import Sgd
from subbit.local.training import Hooks, Local, train_locally
from subbit.methods.method import Turn
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
