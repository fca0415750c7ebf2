"""Names of modules and files in our texts are those of modules and files that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
TEXTS = sorted([*SOURCES.rglob("*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])


@cache
def names_of(module: str) -> set[str] | None:
    """What a module defines or imports; none where there is no such module."""
    place = SOURCES / Path(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.is_file():
        return None
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {name for node in nodes for name in _bound(node)}


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]  # Names that a module loads when they are first used.
    return [node.id] if isinstance(node, ast.Name) else []


def exists(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return names_of(name) is not None or attribute in (names_of(module) or ())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_text_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    modules = re.findall(r"`(subbit\.[a-z_]+\.[A-Za-z_.]+)`", text)
    assert [name for name in modules if not exists(name)] == []
    files = re.findall(r"`([a-z_]+/[a-z_]+\.py)`", text)
    missing = [file for file in files if not (SOURCES / "subbit" / file).is_file() and not (ROOT / file).is_file()]
    assert missing == []


@pytest.mark.parametrize("path", [path for path in TEXTS if path.suffix == ".md"], ids=lambda path: path.name)
def test_no_words_are_run_together(path: Path) -> None:
    """As a replacement without a space leaves them."""
    text = path.read_text(encoding="utf-8").lower()
    assert re.findall(r"\b(?:for|of|in|to|and|with)(?:every|each|the|all)\b", text) == []
