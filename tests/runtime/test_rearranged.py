"""Validation splits and pooled data: other questions about the same problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import subbit
from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Examples
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.rearranged import pooled, with_validation
from subbit.runtime.run import run_job
from tests.problems import digits_problem, settings


def pixels(problem: Problem) -> set[bytes]:
    assert isinstance(problem.test, Examples)
    return {image.numpy().tobytes() for image in problem.test.tensor}


def test_a_validation_split_is_a_share_of_every_client_and_nothing_of_the_test_set() -> None:
    problem = digits_problem()
    found = with_validation(problem, 0.25, seed=3)
    held = [np.setdiff1d(before, after) for before, after in zip(problem.parts, found.parts, strict=True)]
    assert [len(part) for part in held] == [round(0.25 * len(part)) for part in problem.parts]
    assert len(found.test) == sum(map(len, held))
    assert isinstance(found.train, Examples)
    assert pixels(found) == {image.numpy().tobytes() for part in held for image in found.train.tensor[part]}
    again, other = with_validation(problem, 0.25, seed=3), with_validation(problem, 0.25, seed=4)
    assert pixels(again) == pixels(found) != pixels(other)


def test_a_client_keeps_one_example_and_some_are_held_out() -> None:
    problem = digits_problem()
    single = Problem(**{**vars_of(problem), "parts": (np.array([1]), np.array([2, 3]), np.array([], dtype=np.int64))})
    assert [len(part) for part in with_validation(single, 0.9, seed=0).parts] == [1, 1, 0]
    with pytest.raises(DataError, match="needs a larger share"):
        with_validation(single, 0.1, seed=0)


def vars_of(problem: Problem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__}


def test_pooled_is_one_client_with_all_that_the_clients_have() -> None:
    problem = digits_problem()
    found = pooled(problem)
    assert found.clients == 1
    assert np.array_equal(found.parts[0], np.sort(np.concatenate(problem.parts)))


def test_training_in_one_place_is_a_key_of_the_run() -> None:
    """The same as one client that is given everything."""
    keys = {"dataset": "digits", "limit": 60, "test_limit": 40, "model": "mlp", "head": "keep", "rounds": 1}
    keys |= {"method": "fedavg", "select": "all", "alpha": 100.0, "seed": 2}
    central = resolve({**keys, "clients": 3, "pooled": True})
    alone = resolve({**keys, "clients": 1, "partition": "iid"})
    found = [run_job(build_problem(each.run), each) for each in (central, alone)]
    assert found[0].summary["model_sha256"] == found[1].summary["model_sha256"]
    assert found[0].summary["clients"] == 1


def test_no_rounds_fit_the_head_and_send_nothing_else() -> None:
    found = run_job(digits_problem(), settings(method="fedavg", head="lda", rounds=0)).summary
    assert found["score"] == found["score_before"]
    assert found["total_bytes"] == found["one_off_bytes"] > 0
    assert found["bytes_by_round"] == []


def test_the_python_api_has_both() -> None:
    data = [(torch.randn(20, 3), torch.arange(20) % 2) for _ in range(3)]
    wrong = (torch.zeros(6, 3), torch.zeros(6, dtype=torch.int64))
    module = torch.nn.Linear(3, 2)
    tuned = subbit.fine_tune(module, data, wrong, method="fedavg", rounds=1, validation=0.5, select="all")
    others = subbit.fine_tune(module, data, data[0], method="fedavg", rounds=1, validation=0.5, select="all")
    assert tuned.summary["score"] == others.summary["score"], "the test set is not read"
    assert (
        subbit.fine_tune(module, data, wrong, method="fedavg", rounds=1, pooled=True, select="all").summary["clients"]
        == 1
    )


@pytest.mark.parametrize("words", [["validation=0"], ["validation=1"], ["rounds=-1"], ["dataset=own", "pooled=true"]])
def test_impossible_values_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"validation|rounds|own"):
        resolve({}, words)
