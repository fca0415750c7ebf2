"""Python and the packages that subbit needs: installed or not, in range or not. Imports none of them."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from subbit import __version__
from subbit.setup.findings import Finding

NAME = "subbit"
OLDEST_PYTHON = (3, 11)
LEFT_OUT = ("dev", "all")
"""What only the repository's own tests need, and what only names the other extras again."""
NEEDED_FOR = {
    "flower": "engine=flower and real nodes",
    "privacy": "privacy=run",
    "peft": "tuning=lora",
    "int8": "frozen_weights=int8",
    "hdf5": "dataset=pcam",
    "export": "subbit export --onnx and --shrink",
    "board": "subbit board",
    "tensorboard": "track=tensorboard",
    "mlflow": "track=mlflow",
    "wandb": "track=wandb",
}
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?\s*\(?(?P<range>[^;()]*)\)?\s*(;\s*(?P<marker>.*))?")
BOUND = re.compile(r"(?P<sign>>=|<=|==|!=|<|>)\s*(?P<version>[0-9][0-9.]*)")
EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def python_findings() -> Iterator[Finding]:
    version = platform.python_version()
    wanted = ".".join(map(str, OLDEST_PYTHON))
    yield Finding("Python", sys.version_info >= OLDEST_PYTHON, version, f"install Python {wanted} or newer", True)
    yield Finding(NAME, True, __version__)


def package_findings() -> Iterator[Finding]:
    """The packages of every install, then each extra with all of its own."""
    try:
        requirements = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        yield Finding("packages", False, "subbit is not installed as a package", f"pip install {NAME}", False)
        return
    extras: dict[str, dict[str, str]] = {}
    for requirement in requirements:
        parts = REQUIREMENT.fullmatch(requirement.strip())
        if parts is not None:
            extra = EXTRA.search(parts["marker"] or "")
            extras.setdefault(extra["extra"] if extra else "", {})[parts["name"]] = parts["range"]
    for name, packages in extras.items():
        if name not in LEFT_OUT:
            yield _finding(name, packages)


def _finding(extra: str, packages: dict[str, str]) -> Finding:
    problems, versions = [], []
    for name, wanted in packages.items():
        version = _installed(name)
        if version is None:
            problems.append(f"{name} is missing")
        elif not fits(version, wanted):
            problems.append(f"{name} {version} is not {wanted}")
        else:
            versions.append(f"{name} {version}")
    command = f"pip install '{NAME}[{extra}]'" if extra else f"pip install {NAME}"
    purpose = f"for {NEEDED_FOR[extra]}: " if extra in NEEDED_FOR else ""
    name = f"extra {extra}" if extra else "packages"
    return Finding(name, not problems, ", ".join(problems or versions), purpose + command, not extra)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def fits(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as ">=2.6,<2.14". Only its numbers count: 2.13.0+cpu is 2.13.0.

    >>> fits("2.13.0+cpu", ">=2.6,<2.14"), fits("5.0rc1", ">=5.0"), fits("2.14", "<2.14")
    (True, True, False)
    """
    have = _numbers(version)
    for bound in BOUND.finditer(wanted):
        limit = _numbers(bound["version"])
        size = max(len(have), len(limit))
        one, two = have + (0,) * (size - len(have)), limit + (0,) * (size - len(limit))
        signs = {">=": one >= two, "<=": one <= two, "==": one == two, "!=": one != two, "<": one < two, ">": one > two}
        if not signs[bound["sign"]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()
