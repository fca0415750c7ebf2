"""The lean head in a federation: who sends what, what it costs, and what the server refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.core.errors import PayloadError
from subbit.methods.heads import HeadMethod
from subbit.methods.lean_fit import LeanDiscriminant
from subbit.methods.method import Turn
from subbit.runtime.run import run_job
from tests.methods.test_coded_heads import AsFloat, fitting, sent
from tests.problems import digits_problem, settings

KEYS: dict[str, Any] = {"method": "fedavg", "head": "lda", "select": "all", "rounds": 0}


def lean(clients_drawn: bool = True) -> tuple[HeadMethod, dict[str, Any], int]:
    """The method, and what client 0 says, which is drawn or not."""
    method = fitting("lean")
    assert isinstance(method.fit, LeanDiscriminant)
    method.fit.ranks = dict.fromkeys(method.fit.ranks, 0 if clients_drawn else 10**6)
    data = digits_problem().client_data(0)
    payloads = method.train(None, data, Turn(0, 0, {})).payloads
    return method, {name: value.copy() for name, value in payloads.items()}, len(data)


def test_a_lean_head_is_nearly_as_good_for_fewer_bytes() -> None:
    problem = replace(digits_problem(), module=nn.Sequential(nn.Flatten(), AsFloat(), nn.Linear(64, 10)))
    found = {codec: run_job(problem, settings(**KEYS, head_codec=codec)).summary for codec in ("factors", "lean")}
    assert found["lean"]["score"] >= found["factors"]["score"] - 0.03
    assert found["lean"]["one_off_bytes"] < found["factors"]["one_off_bytes"]


def test_it_does_not_depend_on_workers() -> None:
    one, two = (
        run_job(digits_problem(), settings(method="subbit", head="lda", rounds=1, workers=workers)).summary
        for workers in (1, 2)
    )
    assert one["model_sha256"] == two["model_sha256"]


def test_server_and_clients_agree_on_who_is_drawn() -> None:
    ranks = [fitting("lean").fit.ranks for _ in range(2)]  # type: ignore[attr-defined]
    assert ranks[0] == ranks[1]
    assert sorted(ranks[0].values()) == list(range(digits_problem().clients))


@pytest.mark.parametrize("drawn", [True, False])
def test_what_was_sent_is_accepted(drawn: bool) -> None:
    method, payloads, examples = lean(drawn)
    assert bool(payloads["units"][3] > 0) is drawn
    method.examine(None, sent(method, payloads), examples, 0)
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, payloads, examples, 0, 0)
    head = np.asarray(method.step(method.start(), accumulator, 0)["head"])
    assert np.isfinite(head).all()
    assert head.any()


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_with_hardly_an_example_takes_part(count: int) -> None:
    method, _, _ = lean()
    data = digits_problem().client_data(0).select(np.arange(count))
    payloads = sent(method, method.train(None, data, Turn(0, 0, {})).payloads)
    method.examine(None, payloads, count, 0)
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, payloads, count, 0, 0)
    assert np.isfinite(np.asarray(method.step(method.start(), accumulator, 0)["head"])).all()


@pytest.mark.parametrize(
    ("name", "place", "lie", "complaint"),
    [
        ("counts", 0, 0.5, "whole number"),
        ("counts", 0, 1e6, "the upload speaks of"),
        ("units", 0, -1.0, "unit of features"),
        ("units", 0, 3e38, "deviations of features"),
        ("units", 0, np.nan, "unit of features"),
        ("units", 2, 3e38, "sums of features"),
        ("units", 3, 0.0, "without a step"),
        ("levels", 0, 2000.0, "deviations of features"),
        ("levels", 0, 3e38, "deviations of features"),
        ("numbers", 0, 3e38, "sums of features"),
    ],
)
def test_a_summary_that_no_features_have_is_refused(name: str, place: int, lie: float, complaint: str) -> None:
    method, payloads, examples = lean()
    payloads[name][place] = lie
    with pytest.raises(PayloadError, match=complaint):
        method.examine(None, payloads, examples, 0)


def test_factors_of_those_who_were_not_drawn_are_refused() -> None:
    """The covariance is of few clients: one that is not among them has no say in it."""
    _, payloads, examples = lean(True)
    method, _, _ = lean(False)
    with pytest.raises(PayloadError, match="not drawn"):
        method.examine(None, payloads, examples, 0)


def test_means_of_classes_without_examples_are_refused() -> None:
    method, payloads, examples = lean()
    width = method.head.in_features
    payloads["counts"][1] += payloads["counts"][0]
    payloads["counts"][0] = 0
    payloads["numbers"][width : 2 * width] = 1
    with pytest.raises(PayloadError, match="class without examples"):
        method.examine(None, payloads, examples, 0)


@pytest.mark.parametrize("lie", [0.0, 1.0, -3.0, 1e30])
@pytest.mark.parametrize("step", [1e-30, 1.0, 3e38])
def test_no_factors_make_more_than_correlations(lie: float, step: float) -> None:
    method, payloads, examples = lean()
    payloads["numbers"][-(method.head.in_features**2) :] = lie
    payloads["units"][3] = step
    method.examine(None, payloads, examples, 0)
    assert isinstance(method.fit, LeanDiscriminant)
    summary = method.fit._summary(payloads)
    moment, most = summary.statistics().moment, float(summary.deviations.square().sum())
    # Correlations up to 1, and no eigenvalue is lifted by more than 1.
    assert float(moment.trace()) <= 2 * most * (1 + 1e-6)
    assert float(torch.linalg.eigvalsh(moment)[0]) >= -1e-9 * most
    assert 0.0 <= summary.floor <= 1.0
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, payloads, examples, 0, 0)
    assert np.isfinite(np.asarray(method.step(method.start(), accumulator, 0)["head"])).all()
