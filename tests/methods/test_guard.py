"""The guard on a client's step: rates that destroy a network cost rounds instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from subbit.core.errors import ConfigError
from subbit.local.step_guard import HALVINGS, Guard, is_above
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
    with pytest.raises(ConfigError, match="use guard=false"):
        Workplace(digits_problem(), settings(method="fedavg", privacy="run", guard=True))


def test_going_back_by_hand() -> None:
    """Differences 0.1, 0.2, 0.1 have the mean 0.133 and the standard error 0.033: above. 0.1, -0.3, 0.3: not."""
    assert is_above([1.1, 1.2, 1.0], [1.0, 1.0, 0.9])
    assert not is_above([1.1, 0.7, 1.3], [1.0, 1.0, 1.0])
    assert is_above([float("nan"), 1.0], [1.0, 1.0])
    assert not is_above([float("nan"), 1.0], [float("inf"), 1.0])


def from_subspace(**words: Any) -> tuple[Guard, torch.Tensor]:
    problem = replace(digits_problem(mlp(16)), pretrained=True)
    method = Workplace(problem, settings(method="subbit", guard="start", **words)).method("main")
    trained = torch.from_numpy(method.map.start())
    return Guard.of(method.task, method.map, trained, problem.client_data(0), TURN), trained


def test_what_is_not_worse_than_the_start_is_left_as_it_is() -> None:
    found, trained = from_subspace()
    assert not found.go_back(trained)
    assert not trained.any()


def test_a_network_that_was_destroyed_goes_back_to_the_start() -> None:
    found, trained = from_subspace(head="lda")
    trained += 3.0
    assert found.go_back(trained)
    assert float(trained.abs().max()) <= 1.5
    assert torch.equal(found.before, trained)


def test_only_a_subspace_knows_the_way_back() -> None:
    with pytest.raises(ConfigError, match="needs map=subspace"):
        Workplace(digits_problem(mlp(16)), settings(method="fedavg", guard="start")).method("main")


def test_two_classes_each_and_a_rate_that_is_too_large_end_near_the_start() -> None:
    labels = digits_problem(mlp(64)).train.labels
    assert labels is not None
    parts = [np.flatnonzero(labels.numpy() // 2 == client)[:80] for client in range(5)]
    common = {"method": "subbit", "head": "lda", "clients": 5, "rounds": 6, "learning_rate": 0.05}
    common |= {"server_momentum": 0.5}
    problem = replace(digits_problem(mlp(64), parts), pretrained=True)
    with_it, without = (run_job(problem, settings(**common, guard=guard)).summary for guard in ("start", True))
    assert with_it["accuracy_before"] == without["accuracy_before"]
    assert with_it["accuracy"] > without["accuracy"] + 0.05
