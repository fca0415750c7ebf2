"""What the package imports it also declares, and what it declares is explained."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""Where it is not the name with underscores."""


def declared() -> list[str]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return [Requirement(text).name for group in groups for text in group]


def imported(folder: Path) -> dict[str, Path]:
    """The libraries that the files import, each with one file that does."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0]: path for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found[node.module.partition(".")[0]] = path
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names}


def test_what_is_imported_is_declared() -> None:
    """Also what another dependency happens to bring: it may stop doing so."""
    known = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in declared()}
    missing = {name: path for name, path in imported(ROOT / "src").items() if name not in known | {"subbit"}}
    assert not missing


def test_what_is_declared_is_explained() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text().lower()
    tools = {"pytest-timeout", "pytest-xdist"}
    assert not [name for name in declared() if name.lower() not in page and name not in tools]
