"""What every registered method must do (`subbit.conformance.method_laws`). A new one is covered by being registered."""

from __future__ import annotations

import pytest

from subbit.conformance.laws import Law, laws_of
from subbit.conformance.method_laws import runs_everywhere, runs_on, workers_change_nothing
from subbit.methods.names import method_names
from tests.problems import MODULES

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
