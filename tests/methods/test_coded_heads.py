"""The closed-form head from fewer bytes, and how far its covariance is shrunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.codecs import Shared
from subbit.core.errors import ConfigError, PayloadError
from subbit.methods.head_fits import CODECS
from subbit.methods.heads import HeadMethod
from subbit.methods.method import Turn
from subbit.models.head_start import LdaStatistics
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def features(examples: int = 60, width: int = 12, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mixed = torch.randn(examples, width, generator=generator) @ torch.randn(width, width, generator=generator)
    labels = torch.arange(examples) % classes
    return mixed + 7 * labels[:, None], labels


def test_correlations_hold_all_of_the_moment() -> None:
    statistics = LdaStatistics.from_features(*features(), 3)
    sums, correlations = statistics.to_correlations()
    assert (len(sums), len(correlations)) == (3 + 3 * 12 + 12, 12 * 11 // 2)
    assert float(correlations.abs().max()) <= 1
    again = LdaStatistics.from_correlations(sums, correlations, 3, 12)
    torch.testing.assert_close(again.moment, statistics.moment, rtol=1e-5, atol=1e-3)


def test_correlations_by_hand() -> None:
    """One class, (0, 0), (2, 4), (4, 8): mean (2, 4), scatter 8, 32 and 16 between them, which are in proportion."""
    rows = torch.tensor([[0.0, 0.0], [2.0, 4.0], [4.0, 8.0]])
    sums, correlations = LdaStatistics.from_features(rows, torch.zeros(3, dtype=torch.int64), 1).to_correlations()
    assert sums.tolist() == pytest.approx([3, 6, 12, 8**0.5, 32**0.5])
    assert correlations.tolist() == pytest.approx([1.0])
    constant = LdaStatistics.from_features(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64), 1)
    assert constant.to_correlations()[1].tolist() == [0.0]


@pytest.mark.parametrize("codec", CODECS)
def test_real_features_are_never_refused_and_give_nearly_the_same_covariance(codec: str) -> None:
    method = fitting(codec)
    for client in range(3):
        data = digits_problem().client_data(client)
        payloads = sent(method, method.train(None, data, Turn(0, client, {})).payloads)
        method.examine(None, payloads, len(data), client)
        exact = LdaStatistics.from_features(*method.features(data), method.task.classes)
        found: Any = method.fit
        error = (found._statistics(payloads).moment - exact.moment).abs().max() / exact.moment.trace()
        assert float(error) <= CODECS[codec][1] + 1e-6


def fitting(codec: str) -> HeadMethod:
    method = Workplace(digits_problem(), settings(method="fedavg", head="lda", head_codec=codec)).method("head")
    assert isinstance(method, HeadMethod)
    return method


def sent(method: HeadMethod, payloads: Any) -> dict[str, Any]:
    """As the server decodes them."""
    parts = {part.name: part for part in method.up_parts()}
    encoded = {name: part.codec.encode(payloads[name], Shared(part.size)) for name, part in parts.items()}
    return {name: part.codec.decode(encoded[name], Shared(part.size)) for name, part in parts.items()}


def test_coded_heads_are_as_good_for_fewer_bytes() -> None:
    keys: dict[str, Any] = {"method": "fedavg", "head": "lda", "head_shrinkage": "auto", "rounds": 0}
    found = {
        codec: run_job(digits_problem(), settings(**keys, head_codec=codec)).summary
        for codec in ("float32", "float16", "int8", "factors", "auto")
    }
    scores = [summary["score"] for summary in found.values()]
    assert max(scores) - min(scores) <= 0.025, "two of 100 images"
    sizes = [found[codec]["one_off_bytes"] for codec in ("float32", "float16", "int8", "factors")]
    assert sizes == sorted(sizes, reverse=True)
    assert found["auto"]["one_off_bytes"] == found["factors"]["one_off_bytes"] < 0.5 * found["int8"]["one_off_bytes"]


class AsFloat(nn.Module):
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() / 16


def test_wide_features_take_a_small_part_of_the_bytes_for_the_same_head() -> None:
    """The pixels of the digits as features: 64 of them, a network of nothing but its head."""
    problem = digits_problem()
    problem = replace(problem, module=nn.Sequential(nn.Flatten(), AsFloat(), nn.Linear(64, 10)))
    keys: dict[str, Any] = {"method": "fedavg", "head": "lda", "select": "all", "rounds": 0}
    exact, small = (run_job(problem, settings(**keys, head_codec=codec)).summary for codec in ("float32", "factors"))
    assert small["score"] >= exact["score"] - 0.01
    assert small["one_off_bytes"] < 0.25 * exact["one_off_bytes"]


@pytest.mark.parametrize(
    ("name", "place", "lie", "complaint"),
    [
        ("correlations", 0, 1.5, "correlations of features"),
        ("sums", -1, -1.0, "deviation of features"),
        ("sums", 0, 0.5, "whole number"),
        ("sums", -1, 1e30, "deviations of features"),
    ],
)
def test_what_no_features_have_is_refused(name: str, place: int, lie: float, complaint: str) -> None:
    method = fitting("int8")
    data = digits_problem().client_data(0)
    payloads = {key: value.copy() for key, value in method.train(None, data, Turn(0, 0, {})).payloads.items()}
    payloads[name][place] = lie
    with pytest.raises(PayloadError, match=complaint):
        method.examine(None, payloads, len(data), 0)


@pytest.mark.parametrize(
    ("name", "place", "lie", "complaint"),
    [
        ("counts", 0, 0.5, "whole number"),
        ("counts", 0, -1.0, "examples of a class"),
        ("counts", 0, 1e6, "the upload speaks of"),
        ("scales", 0, -1.0, "deviation of features"),
        ("scales", 0, 1e30, "deviations of features"),
        ("scales", -1, 1e7, "second moments of features"),
        ("numbers", 0, 1e30, "sums of features"),
    ],
)
def test_a_summary_that_no_features_have_is_refused(name: str, place: int, lie: float, complaint: str) -> None:
    method = fitting("factors")
    data = digits_problem().client_data(0)
    payloads = {key: value.copy() for key, value in method.train(None, data, Turn(0, 0, {})).payloads.items()}
    payloads[name][place] = lie
    with pytest.raises(PayloadError, match=complaint):
        method.examine(None, payloads, len(data), 0)


def test_means_of_classes_without_examples_are_refused() -> None:
    method = fitting("factors")
    data = digits_problem().client_data(0)
    payloads = {key: value.copy() for key, value in method.train(None, data, Turn(0, 0, {})).payloads.items()}
    width = method.head.in_features
    payloads["counts"][1] += payloads["counts"][0]
    payloads["counts"][0] = 0
    payloads["numbers"][width : 2 * width] = 1
    with pytest.raises(PayloadError, match="class without examples"):
        method.examine(None, payloads, len(data), 0)


@pytest.mark.parametrize("lie", [0.0, 1.0, -3.0, 1e30])
def test_no_factors_make_a_covariance_that_is_none(lie: float) -> None:
    """Their columns are scaled to length 1, so all that can be said with them are correlations."""
    method = fitting("factors")
    data = digits_problem().client_data(0)
    payloads = {key: value.copy() for key, value in method.train(None, data, Turn(0, 0, {})).payloads.items()}
    payloads["numbers"][-(method.head.in_features**2) :] = lie
    method.examine(None, payloads, len(data), 0)
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, payloads, len(data), 0, 0)
    assert np.isfinite(np.asarray(method.step(method.start(), accumulator, 0)["head"])).all()


def test_a_client_with_one_example_takes_part() -> None:
    method = fitting("factors")
    data = digits_problem().client_data(0).select(np.array([0]))
    payloads = sent(method, method.train(None, data, Turn(0, 0, {})).payloads)
    method.examine(None, payloads, 1, 0)
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, payloads, 1, 0, 0)
    assert np.isfinite(np.asarray(method.step(method.start(), accumulator, 0)["head"])).all()


def test_the_head_does_not_depend_on_workers() -> None:
    keys: dict[str, Any] = {"method": "fedavg", "head": "lda", "rounds": 1}
    one, two = (run_job(digits_problem(), settings(**keys, workers=workers)).summary for workers in (1, 2))
    assert one["model_sha256"] == two["model_sha256"]


def test_correlations_that_contradict_each_other_are_refused() -> None:
    """Each pair of three features can be opposed by -1, but not all three: an eigenvalue of 1 - 2 = -1."""
    method = fitting("int8")
    data = digits_problem().client_data(0)
    payloads = {key: value.copy() for key, value in method.train(None, data, Turn(0, 0, {})).payloads.items()}
    payloads["correlations"][:] = -1.0
    payloads["sums"][-method.head.in_features :] = 1e3
    with pytest.raises(PayloadError, match="eigenvalue"):
        method.examine(None, payloads, len(data), 0)


@pytest.mark.parametrize(
    "word",
    [{"head_shrinkage": 0.0}, {"head_shrinkage": 1.1}, {"head_temperature": 0.0}, {"head_codec": "int4"}],
)
def test_impossible_heads_are_refused(word: dict[str, Any]) -> None:
    run = settings(method="fedavg").run
    with pytest.raises(ConfigError, match="head_"):
        settings(method="fedavg", **word)
    assert replace(run, head_shrinkage=1.0).head_shrinkage == 1.0
    assert np.isfinite(run.head_learning_rate)
