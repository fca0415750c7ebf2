"""What every registered method must do (`subbit.conformance.method_laws`). A new one is covered by being registered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subbit.conformance import method_laws
from subbit.conformance.laws import Law, laws_of
from subbit.conformance.method_laws import runs_everywhere, runs_on, workers_change_nothing
from subbit.methods.names import method_names
from tests.problems import MODULES, digits_problem

METHODS = method_names()
ELSEWHERE = (runs_everywhere, workers_change_nothing)
"""Tried below piece by piece, and in `tests/runtime/test_engines.py`."""
LAWS = [pytest.param(law, id=law.holds.__name__) for law in laws_of("method") if law.holds not in ELSEWHERE]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_it_runs_on_every_kind_of_module(method: str, module: str, preset: str) -> None:
    runs_on(method, module, preset)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("law", LAWS)
def test_it_keeps_the_law(law: Law, method: str) -> None:
    law.holds(method)


@pytest.mark.parametrize("law", LAWS)
def test_subbit_keeps_the_law_on_a_network_that_was_trained_before(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks above have random weights, which it trains themselves instead of a subspace of them."""
    monkeypatch.setattr(
        method_laws, "digits_problem", lambda *given, **more: replace(digits_problem(*given, **more), pretrained=True)
    )
    law.holds("subbit")
