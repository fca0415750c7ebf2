"""What the package imports it also declares, and what it declares is explained."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = SETTINGS["project"], SETTINGS["build-system"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
IMPORTED_AS = {"pillow": "PIL", "scikit-learn": "sklearn", "protobuf": "google", "mlflow-skinny": "mlflow"}
"""Where it is not the name with underscores."""


def declared() -> list[str]:
    return [Requirement(text).name for group in groups() for text in group]


def groups() -> list[list[str]]:
    """The dependencies and the extras; `all` only names the extras again."""
    return [PROJECT["dependencies"], *(group for name, group in EXTRAS.items() if name != "all")]


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


def test_all_is_every_extra_but_those_of_developers() -> None:
    assert EXTRAS["all"] == [f"subbit[{name}]" for name in EXTRAS if name not in ("all", "dev", "docs")]


def locked() -> dict[str, tuple[str, list[str]]]:
    """Name, version and hashes of every line of the lock files."""
    text = "".join((ROOT / name).read_text() for name in ("requirements.lock", "requirements-torch.lock"))
    lines = text.replace("\\\n", " ").splitlines()
    parsed = {}
    for line in lines:
        if not line.startswith("#"):
            requirement, *hashes = line.split()
            name, _, version = requirement.partition("==")
            parsed[canonicalize_name(name)] = (version, hashes)
    return parsed


def test_every_dependency_has_an_upper_bound() -> None:
    requirements = [Requirement(text) for group in [*groups(), BUILD["requires"]] for text in group]
    assert not [str(found) for found in requirements if not any(part.operator == "<" for part in found.specifier)]


def test_the_lock_has_all_that_make_installs_in_its_range_and_with_hashes() -> None:
    extras = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert extras is not None
    chosen = [PROJECT["optional-dependencies"][extra] for extra in extras[1].split(",")]
    versions = locked()
    for text in [text for group in [PROJECT["dependencies"], BUILD["requires"], *chosen] for text in group]:
        requirement = Requirement(text)
        version, _ = versions[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, text
    for name, (version, hashes) in versions.items():
        assert re.fullmatch(r"[0-9][A-Za-z0-9.]*", version), name
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes), name


def test_the_bill_of_materials_lists_what_is_installed_and_what_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "sbom.json"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "sbom.py"), str(path)], check=True, capture_output=True)
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "subbit")
    known = {component["bom-ref"] for component in bill["components"]}
    numpy = f"pkg:pypi/numpy@{metadata.version('numpy')}"
    assert numpy in known
    needed = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert numpy in needed[bill["metadata"]["component"]["bom-ref"]]
    assert all(ref in known for refs in needed.values() for ref in refs if "/subbit@" not in ref)
