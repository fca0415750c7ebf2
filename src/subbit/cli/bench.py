"""`subbit bench ...`: runs the repository's benchmarks, which are not installed, from a clone."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import typer

from subbit.cli.consoles import note
from subbit.core.errors import ConfigError

OWN_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
"""Everything after `bench`, including options, is passed to the benchmarks."""


def bench(context: typer.Context) -> None:
    """Run a benchmark in a clone of the repository: `codecs`, `engine`, `flower` or `scaling`.

    [bold]subbit bench codecs --size 1000000[/bold]
    [bold]subbit bench flower --json[/bold]
    """
    root = find_clone(Path.cwd())
    if root is None:
        raise ConfigError("benchmarks are run from a clone of the repository: change into its folder first")
    note("benchmarks: loading PyTorch")
    sys.path.insert(0, str(root))
    commands = importlib.import_module("benchmarks.bench.commands")
    commands.bench_app(args=context.args, prog_name="subbit bench", standalone_mode=False)


def find_clone(folder: Path) -> Path | None:
    """The repository that contains the folder, if it is ours: only its code is run."""
    return next((root for root in (folder, *folder.parents) if _is_ours(root)), None)


def _is_ours(root: Path) -> bool:
    try:
        name = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return name == "subbit" and (root / "benchmarks" / "bench" / "commands.py").is_file()
