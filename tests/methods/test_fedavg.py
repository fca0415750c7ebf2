"""FedAvg and the heads against hand-derived numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.methods.fedavg import RATE, RATE_OF_PRETRAINED
from subbit.methods.method import Turn
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, mlp, settings


def test_the_step_is_the_mean_of_the_changes_weighted_by_examples() -> None:
    """Changes +1 (1 example) and -1 (3 examples): the weights move by (1 - 3) / 4 = -0.5."""
    method = Workplace(digits_problem(), settings(method="fedavg")).method("main")
    state = method.start()
    before = np.asarray(state["weights"]).copy()
    accumulator = method.accumulator()
    ones = np.ones(method.size, dtype=np.float32)
    method.accumulate(accumulator, None, {"weights": ones}, 1, 0, 0)
    method.accumulate(accumulator, None, {"weights": -ones}, 3, 0, 1)
    after = method.step(state, accumulator, 0)["weights"]
    assert np.allclose(after, before - 0.5, atol=1e-6)


def test_one_sgd_step_is_w_minus_learning_rate_times_gradient() -> None:
    problem = digits_problem()
    method = Workplace(
        problem, settings(method="fedavg", optimizer="sgd", momentum=0.0, learning_rate=0.5, batch_size=1000)
    ).method("main")
    data = problem.client_data(0)
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, data, Turn(0, 0, {}))
    module = mlp()
    nn.functional.cross_entropy(module(data.inputs), data.labels).backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    assert np.allclose(update.payloads["weights"], -0.5 * gradient.numpy(), atol=1e-6)


def test_running_statistics_travel_when_they_are_averaged_and_only_then() -> None:
    problem = digits_problem(conv_net())
    averaged = Workplace(problem, settings(method="fedavg", batchnorm="average")).method("main")
    assert [part.name for part in averaged.up_parts()] == ["weights", "statistics"]
    view = averaged.open(averaged.broadcast(averaged.start(), 0), 0)
    update = averaged.train(view, problem.client_data(0), Turn(0, 0, {}))
    assert np.abs(update.payloads["statistics"]).max() > 0
    frozen = Workplace(problem, settings(method="fedavg", batchnorm="frozen"))
    method = frozen.method("main")
    assert [part.name for part in method.up_parts()] == ["weights"]
    method.train(method.open(method.broadcast(method.start(), 0), 0), problem.client_data(0), Turn(0, 0, {}))
    assert torch.equal(frozen.module[2].running_mean, torch.zeros(8))


@pytest.mark.parametrize("head", ["probe", "lda"])
def test_a_fitted_head_beats_the_one_it_started_from(head: str) -> None:
    problem = digits_problem(mlp(64), examples=600)
    workplace = Workplace(problem, settings(head=head, head_epochs=20, select="2.weight"))
    method = workplace.method("head")
    state, accumulator = method.start(), method.accumulator()
    before = workplace.tally(np.arange(100))[:, 0].sum()
    workplace.attach("head")
    for client in range(3):
        update = method.train(None, problem.client_data(client), Turn(0, client, {}))
        method.accumulate(accumulator, None, update.payloads, update.examples, 0, client)
    state = method.step(state, accumulator, 0)
    workplace.attach("main")
    workplace.write_head(state["head"])
    assert workplace.tally(np.arange(100))[:, 0].sum() > before + 30


def test_the_lda_head_does_not_depend_on_who_holds_which_example() -> None:
    """Sufficient statistics add up: one client with everything and three with a third each give the same head."""

    def fitted(parts: list[np.ndarray]) -> np.ndarray:
        problem = digits_problem(mlp(), parts)
        method = Workplace(
            problem, settings(head="lda", head_codec="float32", select="2.weight", clients=len(parts))
        ).method("head")
        accumulator = method.accumulator()
        for client in range(len(parts)):
            update = method.train(None, problem.client_data(client), Turn(0, client, {}))
            method.accumulate(accumulator, None, update.payloads, update.examples, 0, client)
        return np.asarray(method.step(method.start(), accumulator, 0)["head"])

    together = fitted([np.arange(240)])
    apart = fitted([np.arange(0, 100), np.arange(100, 110), np.arange(110, 240)])
    assert np.allclose(together, apart, rtol=1e-3, atol=1e-3)


def test_auto_is_careful_with_weights_that_were_trained() -> None:
    def found(pretrained: bool, **words: Any) -> tuple[float, str]:
        problem = replace(digits_problem(mlp(16)), pretrained=pretrained)
        method = Workplace(problem, settings(method="fedavg", **words)).method("main")
        local = method.trainer.local  # type: ignore[attr-defined]
        return float(local.rate), local.schedule

    careful, usual = (RATE_OF_PRETRAINED, "cosine"), (RATE, "constant")
    assert (found(True), found(False)) == (careful, usual)
    assert found(True, optimizer="adamw") == careful
    assert found(True, optimizer="sgd") == usual, "its first steps are as long as the gradient"
    assert found(True, select="head") == usual, "the rest stays as it is"
    assert found(True, map="mask") == usual, "scores are no weights"
    assert found(True, learning_rate=0.3) == (0.3, "constant"), "a rate that is given stays"
    assert found(True, schedule="constant") == (RATE_OF_PRETRAINED, "constant")
    assert found(True, learning_rate=0.3, schedule="cosine") == (0.3, "cosine")


def test_careful_steps_still_learn() -> None:
    problem = replace(digits_problem(mlp(16)), pretrained=True)
    # As long a way as 30 rounds at the full rate.
    summary = run_job(problem, settings(method="fedavg", rounds=60, epochs=5, batch_size=8, evaluate_every=60)).summary
    assert summary["accuracy"] > summary["accuracy_before"] + 0.2
