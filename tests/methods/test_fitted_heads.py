"""Heads fitted in one round: what the server makes of clients that have nothing, or that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from subbit.core.errors import PayloadError
from subbit.exchange.honest import check_statistics
from subbit.methods.heads import HeadMethod
from subbit.methods.method import Turn
from subbit.models.head_start import LdaStatistics
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def fitting(head: str) -> HeadMethod:
    method = Workplace(digits_problem(), settings(method="fedavg", head=head, head_codec="float32")).method("head")
    assert isinstance(method, HeadMethod)
    return method


def fitted(method: HeadMethod, uploads: list[tuple[dict[str, Any], int]]) -> np.ndarray:
    accumulator = method.accumulator()
    for client, (payloads, examples) in enumerate(uploads):
        method.accumulate(accumulator, None, payloads, examples, 0, client)
    return np.asarray(method.step(method.start(), accumulator, 0)["head"])


def test_clients_that_claim_no_examples_leave_a_probed_head_as_it_is() -> None:
    method = fitting("probe")
    update = method.train(None, digits_problem().client_data(0), Turn(0, 0, {}))
    assert np.array_equal(fitted(method, [(update.payloads, 0)]), method.start()["head"])
    found = fitted(method, [(update.payloads, 0), (update.payloads, 80)])
    assert np.array_equal(found[: method.size], update.payloads["head"])
    assert not found[method.size :].any(), "a probe says nothing about the shares of classes"


@pytest.mark.parametrize("lie", [-1.0, -1e30])
def test_counts_below_zero_are_refused_and_take_the_discriminant_from_nobody_else(lie: float) -> None:
    method = fitting("lda")
    honest = method.train(None, digits_problem().client_data(0), Turn(0, 0, {})).payloads
    forged = {"statistics": honest["statistics"].copy()}
    forged["statistics"][3] = lie
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, honest, 80, 0, 0)
    with pytest.raises(PayloadError, match="examples of a class"):
        method.examine(None, forged, 80, 1)
    found = np.asarray(method.step(method.start(), accumulator, 0)["head"])
    assert np.array_equal(found, fitted(method, [(honest, 80)]))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e4])
@pytest.mark.parametrize("examples", [1, 2, 30])
def test_statistics_of_real_features_are_never_refused(scale: float, examples: int) -> None:
    """Of any size, also where squares vanish in float32; few examples, where nothing is spread within a class."""
    generator = torch.Generator().manual_seed(examples)
    features = scale * (5 + torch.randn(examples, 16, generator=generator))
    labels = torch.randint(0, 10, (examples,), generator=generator)
    sent = LdaStatistics.from_features(features, labels, 10).to_vector()
    check_statistics(LdaStatistics.from_vector(sent, 10, 16), examples)
    same = LdaStatistics.from_features(features[:1].expand(examples, 16), labels[:1].expand(examples), 10)
    check_statistics(LdaStatistics.from_vector(same.to_vector(), 10, 16), examples)


def test_statistics_that_no_features_have_are_refused() -> None:
    """Two examples of one class at 1 and 3: sum 4, second moment 10, of which 4^2 / 2 = 8 is that of the mean. With a
    moment of 7 their variance would be negative. And so on, one rule after the other."""
    true = LdaStatistics.from_features(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2)
    assert [*true.counts, *true.sums.flatten(), *true.moment.flatten()] == [2, 0, 4, 0, 10]
    check_statistics(true, 2)
    for vector, examples, complaint in (
        ([2, 0, 4, 0, 7], 2, "eigenvalue of -1"),
        ([2, 0, 4, 0, -10], 2, "eigenvalue of -18"),
        ([2, 0, 4, 1, 10], 2, "class without examples"),
        ([2, 0, 4, 0, 10], 3, "the upload speaks of 3"),
        ([2, 0, 4, 0, 10], 0, "the upload speaks of 0"),
        ([1.5, 0.5, 4, 0, 10], 2, "needs a whole number"),
        ([3, -1, 4, 0, 10], 2, "-1 examples of a class"),
        ([2, 0, 3e6, 0, 1e13], 2, "sums of features"),
        ([2, 0, 4, 0, 3e12], 2, "second moments of features"),
        ([2, 0, float("nan"), 0, 10], 2, "sums of features"),
        ([2, 0, 4, 0, float("inf")], 2, "second moments"),
    ):
        with pytest.raises(PayloadError, match=complaint):
            check_statistics(LdaStatistics.from_vector(torch.tensor(vector), 2, 1), examples)
