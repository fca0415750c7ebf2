"""The folders of the package: which of them may use which, and that no arrow leads back."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "subbit"
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "codecs": {"core"},
    "wire": {"core", "codecs"},
    "sets": {"core"},
    "data": {"core", "sets"},
    "objectives": {"core", "data"},
    "aggregate": {"core", "codecs"},
    "models": {"core", "codecs", "wire", "data", "objectives"},
    "peft": {"core", "models"},
    "maps": {"core", "codecs", "models"},
    "privacy": {"core", "data", "objectives", "models"},
    "local": {"core", "data", "objectives", "models", "maps", "privacy"},
    "exchange": {"core", "codecs", "wire", "aggregate", "models", "maps"},
    "methods": {
        *("core", "codecs", "data", "objectives", "aggregate", "models", "peft", "maps", "privacy", "local", "exchange")
    },
    "config": {"core", "methods"},
    "runtime": {
        *("core", "codecs", "wire", "data", "objectives", "models"),
        *("privacy", "local", "exchange", "methods", "config"),
    },
    "report": {"core", "codecs", "sets", "data", "models", "methods", "config"},
    "export": {"core", "codecs", "data", "objectives", "models", "peft", "methods", "runtime"},
    "flower": {"core", "codecs", "wire", "objectives", "models", "config", "runtime"},
    "papers": {*("core", "codecs", "wire", "data", "models", "peft", "maps", "methods", "config", "runtime", "report")},
    "arena": {"core", "config", "runtime", "report"},
    "pages": {"core", "wire", "config", "runtime", "report", "papers", "arena"},
    "board": {"core", "config", "runtime", "report", "pages"},
    "tracking": {"core", "config", "runtime"},
    "setup": {"core", "sets", "models"},
    "conformance": {"core", "codecs", "aggregate", "wire", "data", "models", "methods", "config", "runtime", "export"},
    "cli": {
        *("core", "wire", "peft", "methods", "config", "runtime"),
        *("report", "export", "flower", "papers", "arena", "conformance"),
        *("pages", "board", "tracking", "setup"),
    },
}
"""What a folder may import. `core` uses nothing, the command line nearly everything."""
FOLDERS = sorted(ALLOWED)


def imported(path: Path) -> set[str]:
    """Folders of the package that a file imports from, also inside functions. What only types need does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    modules = [
        node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types and node.level == 0
    ]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    parts = [module.split(".") for module in modules if module.startswith("subbit.")]
    return {part[1] for part in parts if (PACKAGE / part[1]).is_dir()}


def test_every_folder_is_here() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ALLOWED)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_is_below_it(folder: str) -> None:
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        beyond = imported(path) - ALLOWED[folder] - {folder}
        assert not beyond, f"{path.relative_to(PACKAGE)} imports from {', '.join(sorted(beyond))}"


def test_no_arrow_leads_back() -> None:
    """Take away, again and again, what imports nothing that is left: in a cycle nothing could be taken."""
    left = {folder: set(below) for folder, below in ALLOWED.items()}
    while left:
        lowest = {folder for folder, below in left.items() if not below}
        assert lowest, f"a cycle among {sorted(left)}"
        left = {folder: below - lowest for folder, below in left.items() if folder not in lowest}


def test_no_file_name_is_there_twice() -> None:
    """So that a name in a traceback or in a search says which file it is."""
    names = Counter(path.name for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_codecs_need_no_torch() -> None:
    code = "import sys, subbit.codecs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
