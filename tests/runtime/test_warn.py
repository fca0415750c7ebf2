"""Warnings at the end of a run: each rule fires where it should, says which key to change, and is silent elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subbit
from subbit.core.errors import RunWarning
from subbit.core.randomness import torch_randomness
from subbit.runtime.events import Before, Event, Failed, MainRound
from subbit.runtime.run import run_job
from subbit.runtime.warn import Setting, find_warnings
from tests.problems import digits_problem, mlp, settings

ACCURACY = Setting(
    score_name="accuracy",
    higher_is_better=True,
    after=0.7,
    tested=1000,
    chance=0.1,
    learning_rate=0.1,
)
ERROR = Setting(score_name="rmse", higher_is_better=False, after=0.7, tested=1000)


def story(before: float, *scores: float | None, losses: Any = (), failures: Any = ()) -> list[Event]:
    rounds = [
        MainRound(
            round=number,
            participants=(0, 1, 2, 3),
            answered=4,
            failures=tuple(failures[number]) if number < len(failures) else (),
            observations={},
            score=score,
            scores=None if score is None else {"accuracy": score, "loss": 1.0},
            seconds=1.0,
            losses=losses[number] if number < len(losses) else None,
            uplink_bpp=1.0,
            total_bytes=1,
        )
        for number, score in enumerate(scores)
    ]
    return [Before(score=before, scores={"accuracy": before, "loss": 1.0}), *rounds]


def only(setting: Setting, events: list[Event]) -> tuple[str, str]:
    (found,) = find_warnings(setting, events)
    assert "\n" not in found.what
    return found.what, found.key


def test_a_run_that_learns_is_left_alone() -> None:
    assert find_warnings(ACCURACY, story(0.1, 0.4, 0.7)) == ()
    assert find_warnings(ERROR, story(2.0, 1.0, 0.7)) == ()


def test_a_score_that_falls() -> None:
    what, key = only(replace(ACCURACY, after=0.13), story(0.66, 0.2, 0.13))
    assert what.startswith("accuracy fell from 0.66 to 0.13: the steps are too large")
    assert what.endswith("try learning_rate=0.01")
    assert key == "learning_rate"
    what, key = only(replace(ACCURACY, after=0.13, server_rate=1.0), story(0.66, 0.8, 0.13))
    assert "after 0.8 in round 0" in what
    assert what.endswith("try server_rate=0.1 or learning_rate=0.01")
    assert key == "server_rate"


def test_a_score_that_falls_where_clients_have_few_classes() -> None:
    what, key = only(replace(ACCURACY, after=0.13, few_classes=True), story(0.66, 0.2, 0.13))
    assert what.startswith(
        "accuracy fell from 0.66 to 0.13: clients have few of the classes each and forget the others"
    )
    assert what.endswith("try calibrate=true, or learning_rate=0.01")
    assert key == "calibrate"


@pytest.mark.parametrize(("regulariser", "key"), [("none", "calibrate"), ("fedprox", "learning_rate")])
def test_clients_of_one_class_that_forget_the_others(regulariser: str, key: str) -> None:
    """`calibrate=true` is named where it can be given, and does help."""
    problem = digits_problem(mlp(64))
    labels = problem.train.labels
    assert labels is not None
    parts = tuple((labels // 2 == pair).nonzero().flatten().numpy() for pair in range(5))
    words = {"method": "fedavg", "head": "lda", "clients": 5, "rounds": 3, "epochs": 20, "learning_rate": 0.01}
    forgets = run_job(replace(problem, parts=parts), settings(**words, regulariser=regulariser)).summary
    (advice,) = forgets["warnings"]
    assert advice["key"] == key
    if key == "calibrate":
        assert "try calibrate=true" in advice["what"]
        assert (
            run_job(replace(problem, parts=parts), settings(**words, calibrate=True)).summary["score"]
            > forgets["score"]
        )


def test_a_score_that_falls_by_no_more_than_the_noise_of_a_small_test_set() -> None:
    few = replace(ACCURACY, after=0.6, tested=50)
    assert find_warnings(few, story(0.7, 0.6)) == ()
    assert len(find_warnings(replace(few, tested=5000), story(0.7, 0.6))) == 1


def test_a_score_that_should_fall_and_rises() -> None:
    what, key = only(replace(ERROR, after=3.0), story(2.0, 3.0))
    assert what.startswith("rmse rose from 2 to 3")
    assert key == "learning_rate"


def test_a_score_that_never_moves() -> None:
    what, key = only(replace(ACCURACY, after=0.3), story(0.3, 0.3, 0.3, 0.3))
    assert what.startswith("accuracy is 0.3 before the first round and after every one")
    assert "learning_rate=1 or another select" in what
    assert key == "learning_rate"
    assert find_warnings(replace(ACCURACY, after=0.3), story(0.3, 0.3, 0.3)) == ()  # Too few rounds to tell.
    assert find_warnings(replace(ACCURACY, after=0.3), story(0.3, 0.3, None, 0.31, 0.3)) == ()
    assert find_warnings(replace(ACCURACY, after=1.0), story(1.0, 1.0, 1.0, 1.0)) == ()  # Nothing left to gain.


def test_clients_of_one_class_do_not_count() -> None:
    """Ten clients of `subbit`, each with one class: no rate would help, and it is not said that one would."""
    what, key = only(replace(ACCURACY, after=0.3, nobody_counts=True), story(0.3, 0.3, 0.3, 0.3))
    assert "no client has two classes" in what
    assert key == "calibrate"
    problem = digits_problem(mlp(16))
    labels = problem.train.labels
    assert labels is not None
    parts = tuple((labels == label).nonzero().flatten().numpy() for label in range(10))
    chosen = settings(method="subbit", clients=10, rounds=3)
    (advice,) = run_job(replace(problem, parts=parts, pretrained=True), chosen).summary["warnings"]
    assert "calibrate=false" in str(advice)


def test_a_score_that_stays_while_the_loss_falls() -> None:
    events = story(0.3, 0.3, 0.3, 0.3)
    last = events[-1]
    assert isinstance(last, MainRound)
    events[-1] = replace(last, scores={"accuracy": 0.3, "loss": 0.9})
    assert find_warnings(replace(ACCURACY, after=0.3), events) == ()


def test_a_head_that_was_never_trained() -> None:
    unfit = replace(ACCURACY, untrained_head="classifier", after=0.4)
    what, key = only(unfit, story(0.11, 0.4))
    assert what.startswith("the head 'classifier' was never trained: it is the module's own (head=keep)")
    assert key == "head"
    assert "it is random (head=kaiming)" in only(replace(unfit, head="kaiming"), story(0.11, 0.4))[0]
    assert find_warnings(replace(unfit, after=0.7), story(0.6, 0.7)) == ()  # It knows its classes.


def test_a_client_whose_loss_explodes() -> None:
    calm = {0: 1.0, 1: 1.1, 2: 0.9, 3: 1.0}
    what, key = only(ACCURACY, story(0.1, 0.4, 0.7, losses=[calm, {**calm, 2: 40.0}]))
    assert what.startswith("the training loss of client 2 is 40 after 0.9 in its first round")
    assert key == "gradient_clip"
    what, _ = only(ACCURACY, story(0.1, 0.7, losses=[{**calm, 2: 40.0}]))
    assert what.startswith("the training loss of client 2 is 40 while the others' is 1")
    assert find_warnings(ACCURACY, story(0.1, 0.4, 0.7, losses=[calm, {0: 1e-3, 1: 1e-3, 2: 1e-3, 3: 0.5}])) == ()
    tiny = {0: 1e-3, 1: 1e-3, 2: 0.1, 3: 1e-3}  # As of clients with two examples each.
    assert find_warnings(ACCURACY, story(0.1, 0.7, losses=[tiny])) == ()
    assert find_warnings(ACCURACY, story(0.1, 0.7, losses=[{0: -1.0, 1: -2.0, 2: 3.0, 3: -1.0}])) == ()


def test_clients_that_fail_for_one_cause() -> None:
    lost = Failed(3, "training", "the loss is nan in step 0")
    what, key = only(ACCURACY, story(0.1, 0.4, 0.7, failures=[[lost], [lost]]))
    assert what == (
        "2 of 8 client turns failed, all for one cause (client 3 never answered): training: the loss is nan in step 0"
    )
    assert key == "learning_rate"
    other = Failed(3, "deadline", "no answer")
    assert find_warnings(ACCURACY, story(0.1, 0.4, 0.7, failures=[[lost], [other]])) == ()
    assert find_warnings(ACCURACY, story(0.1, 0.4, 0.7, failures=[[lost]])) == ()


def clients() -> list[Any]:
    data = digits_problem()
    return [data.client_data(client) for client in range(3)]


@torch_randomness(0)
def test_fine_tune_warns_once_and_the_summary_keeps_it(tmp_path: Path) -> None:
    inputs = torch.randn(300, 4)
    labels = inputs.sum(1)
    module = nn.Linear(4, 1)
    with torch.no_grad():
        module.weight.fill_(0.9)
        module.bias.zero_()
    with pytest.warns(RunWarning, match="rmse rose from") as caught:
        result = subbit.fine_tune(
            module, [(inputs, labels)], (inputs, labels), objective="regression", method="fedavg",
            learning_rate=1.0, rounds=2, batch_size=8, folder=tmp_path / "mine",
        )  # fmt: skip
    assert len([each for each in caught if each.category is RunWarning]) == len(result.warnings)
    assert caught[0].filename == __file__
    written = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert written["warnings"] == result.warnings
    assert result.warnings[0]["key"] == "learning_rate"


def test_a_frozen_random_head_is_named() -> None:
    with pytest.warns(RunWarning, match="head '4' was never trained"):
        subbit.fine_tune(mlp(), clients(), digits_problem().test, method="fedavg", select="2*", rounds=1)


@pytest.mark.parametrize("method", ["fedavg", "deltamask", "subbit", "zampling", "standalone", "topk", "fedpm"])
def test_good_runs_are_silent(method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        subbit.fine_tune(mlp(), clients(), digits_problem().test, method=method, rounds=3, epochs=2)


def test_the_command_line_says_it_on_stderr(tmp_path: Path) -> None:
    words = ["model=mlp", "head=keep", "limit=200", "test_limit=100", "rounds=4", "clients=2", "method=fedavg"]
    done = subprocess.run(
        [sys.executable, "-m", "subbit", "run", *words, "learning_rate=0", "name=a"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "warning: accuracy is" in done.stderr
    assert "warning" not in done.stdout
