"""The shape of the code: what is easy to read stays so."""

from __future__ import annotations

import ast
from pathlib import Path

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


def test_no_function_has_more_than_seven_parameters() -> None:
    found = {
        f"{path.relative_to(SOURCES).as_posix()}: {getattr(node, 'name', 'lambda')}"
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if parameters(node) > MOST_PARAMETERS and not is_kernel(node) and not is_command(node)
    }
    assert not found, "group what belongs together in a small dataclass"
