"""The shape of the code: what is easy to read stays so."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from typing import Any, Generic, get_type_hints

import pytest

from subbit.exchange.exchange import Exchange
from subbit.local.blocked import BlockedAdam
from subbit.maps.bound import BoundMap
from subbit.methods.method import Method
from subbit.methods.names import find_method, method_names
from subbit.methods.variants import Variant
from subbit.runtime.run import run_job
from tests.problems import digits_problem, settings

SOURCES = Path(__file__).parents[1] / "src"
MOST_PARAMETERS = 7


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    """All of them: `self`, keywords, `*` and `**` too."""
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len(listed) + sum(rest is not None for rest in (given.vararg, given.kwarg))


def is_kernel(function: ast.AST) -> bool:
    """Numba knows arrays and no objects."""
    decorators = getattr(function, "decorator_list", [])
    return any(isinstance(each, ast.Name) and each.id == "njit" for each in decorators)


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """The parameters of a command are the options that its user types."""
    return any("typer." in ast.unparse(each.annotation) for each in function.args.args if each.annotation is not None)


PUBLIC = {"subbit/api.py: fine_tune"}
"""The parameters of the Python API are the words of its users, given by name."""


def test_no_function_has_more_than_seven_parameters() -> None:
    found = {
        f"{path.relative_to(SOURCES).as_posix()}: {getattr(node, 'name', 'lambda')}"
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if parameters(node) > MOST_PARAMETERS and not is_kernel(node) and not is_command(node)
    }
    assert found == PUBLIC, "group what belongs together in a small dataclass"


@pytest.mark.parametrize("name", method_names())
def test_a_method_is_at_most_two_levels_of_classes(name: str) -> None:
    found: Any = find_method(name)
    method = found.base if isinstance(found, Variant) else found
    assert method.__bases__ in ((Method,), (Generic,)), f"{method.__name__} derives from {method.__bases__}"
    assert Method.__bases__ == (Generic,)
    hints = get_type_hints(method.__init__)
    assert hints.get("parameters") is not Any, "mypy sees no misspelt key of untyped parameters"


def test_exchanges_and_maps_are_at_most_two_levels_of_classes() -> None:
    for base in (Exchange, BoundMap):
        for child in base.__subclasses__():
            if child.__module__.startswith("subbit."):
                grandchildren = [each for each in child.__subclasses__() if each.__module__.startswith("subbit.")]
                assert not grandchildren, f"{grandchildren} derive from {child.__name__}, which derives from {base}"


@pytest.mark.parametrize("method", ["fedavg", "deltamask", "fedpeft", "zampling"])
def test_from_the_round_to_the_step_of_the_optimiser_are_four_calls(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[str, ...]] = set()
    step = BlockedAdam.step

    def watched(self: Any, *pieces: Any) -> Any:
        names = [frame.name for frame in traceback.extract_stack() if f"{SOURCES}/subbit/" in frame.filename]
        after = names[names.index("run_round") + 1 :]
        seen.add(tuple(name for name in after if name != "in_order"))  # Replies are only sorted there.
        return step(self, *pieces)

    monkeypatch.setattr(BlockedAdam, "step", watched)
    run_job(digits_problem(), settings(method=method, rounds=1))
    assert seen == {("client_turn", "train", "train", "train_locally")}
