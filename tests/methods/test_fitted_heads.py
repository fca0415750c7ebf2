"""Heads fitted in one round: what the server makes of clients that have nothing, or that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from subbit.errors import PayloadError
from subbit.methods.base import Turn
from subbit.methods.heads import HeadMethod
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def fitting(head: str) -> HeadMethod:
    method = Workplace(digits_problem(), settings(method="fedavg", head=head)).method("head")
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
    assert np.array_equal(fitted(method, [(update.payloads, 0), (update.payloads, 80)]), update.payloads["head"])


@pytest.mark.parametrize("lie", [-1.0, -1e30])
def test_counts_below_zero_are_refused_and_take_the_discriminant_from_nobody_else(lie: float) -> None:
    method = fitting("lda")
    honest = method.train(None, digits_problem().client_data(0), Turn(0, 0, {})).payloads
    forged = {"statistics": honest["statistics"].copy()}
    forged["statistics"][3] = lie
    accumulator = method.accumulator()
    method.accumulate(accumulator, None, honest, 80, 0, 0)
    with pytest.raises(PayloadError, match="examples of a class"):
        method.accumulate(accumulator, None, forged, 80, 0, 1)
    found = np.asarray(method.step(method.start(), accumulator, 0)["head"])
    assert np.array_equal(found, fitted(method, [(honest, 80)]))
