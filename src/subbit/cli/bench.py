"""`subbit bench ...`: the benchmarks of the repository, which are not installed. In a clone they are run from there."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import typer

from subbit.core.errors import ConfigError

OWN_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
"""Whatever follows `bench` is for the benchmarks to read, options as well."""


def bench(context: typer.Context) -> None:
    """Measure the codecs and the engines, in a clone of the repository: `codecs` or `flower`.

    [bold]subbit bench codecs --size 1000000[/bold]
    [bold]subbit bench flower --json[/bold]
    """
    root = find_clone(Path.cwd())
    if root is None:
        raise ConfigError("benchmarks are run from a clone of the repository: change into its folder first")
    sys.path.insert(0, str(root))
    commands = importlib.import_module("benchmarks.bench.commands")
    commands.bench_app(args=context.args, prog_name="subbit bench", standalone_mode=False)


def find_clone(folder: Path) -> Path | None:
    """The repository that the folder lies in, if it is ours: only its code is run."""
    return next((root for root in (folder, *folder.parents) if _is_ours(root)), None)


def _is_ours(root: Path) -> bool:
    try:
        name = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return name == "subbit" and (root / "benchmarks" / "bench" / "commands.py").is_file()
