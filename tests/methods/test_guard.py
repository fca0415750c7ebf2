"""The guard on a client's step: rates that destroy a network cost rounds instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subbit.core.errors import ConfigError
from subbit.local.step_guard import HALVINGS, Guard
from subbit.models.task import Turn
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, mlp, settings

TURN = Turn(0, 0, {})


def guard(**words: Any) -> tuple[Guard, torch.Tensor]:
    problem = digits_problem(mlp(16))
    method = Workplace(problem, settings(method="fedavg", **words)).method("main")
    trained = torch.from_numpy(method.map.start())
    return Guard.of(method.task, method.map, trained, problem.client_data(0), TURN), trained


def downhill(found: Guard) -> torch.Tensor:
    """The direction in which the loss falls fastest."""
    flat = found.task.flat
    found.bound.network.write(found.before, flat.weights, 0)
    flat.evaluation_mode()
    flat.backward(found.task.loss(found.batch))
    return -flat.gradient.clone()


def test_a_step_that_lowers_the_loss_is_left_as_it_is() -> None:
    found, trained = guard()
    step = 1e-3 * downhill(found)
    trained += step
    kept = trained.clone()
    assert found.shorten(trained) == 0
    assert torch.equal(trained, kept)


def test_a_step_uphill_is_not_sent() -> None:
    found, trained = guard()
    trained -= 0.1 * downhill(found)
    assert found.shorten(trained) == HALVINGS + 1
    assert torch.equal(trained, found.before)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_neither_is_one_that_is_no_number(value: float) -> None:
    found, trained = guard()
    trained[0] = value
    assert found.shorten(trained) == HALVINGS + 1
    assert torch.equal(trained, found.before)


def test_a_step_that_is_too_long_is_halved() -> None:
    found, trained = guard()
    direction = downhill(found)
    length = 1e-3
    while found._loss(found.before + length * direction) <= found._loss(found.before):
        length *= 2
    # Half of it was still fine, so three quarters of twice the bound need one or two halvings.
    trained += 1.5 * length * direction
    halvings = found.shorten(trained)
    assert 1 <= halvings <= 2
    torch.testing.assert_close(trained, found.before + 1.5 * length * direction * 0.5**halvings)
    assert found._loss(trained) <= found._loss(found.before)


@pytest.mark.parametrize("module", [mlp, conv_net])
def test_a_rate_that_destroys_a_network_does_not_with_a_guard(module: Any) -> None:
    words: dict[str, Any] = {"method": "fedavg", "learning_rate": 3.0, "head": "lda", "select": "all", "rounds": 2}
    with_guard, without = (
        run_job(digits_problem(module()), settings(**words, guard=on)).summary for on in (True, False)
    )
    assert with_guard["accuracy"] >= with_guard["accuracy_before"] - 0.05
    assert without["accuracy"] < without["accuracy_before"] - 0.2


def test_steps_of_masks_are_guarded_too() -> None:
    words = {"method": "fedpm", "learning_rate": 30.0, "head": "lda", "select": "backbone: weights", "rounds": 1}
    with_guard, without = (
        run_job(digits_problem(mlp(16)), settings(**words, guard=on)).summary for on in (True, False)
    )
    assert with_guard["accuracy"] > without["accuracy"] + 0.1


def test_it_changes_nothing_where_nothing_is_wrong() -> None:
    words = {"method": "fedavg", "learning_rate": 1e-4, "rounds": 2}
    plain, guarded = (run_job(digits_problem(), settings(**words, guard=on)).summary for on in (False, True))
    assert plain["model_sha256"] == guarded["model_sha256"]


def test_private_examples_are_not_looked_at() -> None:
    with pytest.raises(ConfigError, match="leave guard out"):
        Workplace(digits_problem(), settings(method="fedavg", privacy="run", guard=True))
