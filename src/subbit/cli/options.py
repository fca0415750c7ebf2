"""`--plugin FILE` of the command line: loaded before the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subbit.core.plugins import load_file


def _load(paths: list[Path] | None) -> list[Path] | None:
    for path in paths or ():
        load_file(path)
    return paths


PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", callback=_load, help="A Python file with methods, codecs, ... of your own; may be repeated"
    ),
]
