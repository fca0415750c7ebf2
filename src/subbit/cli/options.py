"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subbit.cli.completion import complete_folder, complete_job
from subbit.core.plugins import load_file


def _load(context: typer.Context, paths: list[Path] | None) -> list[Path] | None:
    """Before the command runs. Completing words in a shell runs nobody's code."""
    for path in () if context.resilient_parsing else paths or ():
        load_file(path)
    return paths


PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", callback=_load, help="A Python file with methods, codecs, ... of your own; may be repeated"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead")]
JobWords = Annotated[
    list[str] | None,
    typer.Argument(
        help="A TOML file and key=value words, e.g. rounds=5 kappa=0.5",
        autocompletion=complete_job,
        show_default=False,
    ),
]
RunPath = Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo", autocompletion=complete_folder)]
