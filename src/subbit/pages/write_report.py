"""Writes `report.html` beside what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from subbit.core.blame import one_line
from subbit.core.errors import RunFolderError, SubbitError
from subbit.core.files import replace_file
from subbit.pages.comparison_page import comparison_page
from subbit.pages.document import is_ours
from subbit.pages.run_page import run_page

REPORT, COMPARISON = "report.html", "comparison.json"
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration)
"""What a page raises if a file has other things in it than ours has."""


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run folder, finished or not, or of the folder of a comparison. Returns its path.

    An earlier report is replaced; any other file of that name is left alone, and an error.
    """
    folder = Path(folder)
    path = folder / REPORT if out is None else Path(out)
    if (folder / "config.toml").is_file():
        return write_page(path, lambda: run_page(folder))
    if (folder / COMPARISON).is_file():
        return write_page(path, lambda: comparison_page(_read(folder / COMPARISON), f"Comparison in {folder}"))
    raise RunFolderError(
        f"{folder} is neither a run folder (no config.toml) nor that of a comparison (no {COMPARISON}): "
        "name one, e.g. subbit report runs/demo"
    )


def write_page(path: Path, make: Callable[[], str]) -> Path:
    """Write a page that `make` returns. What cannot be made of damaged files is an error that says so."""
    if path.is_dir():
        raise RunFolderError(f"{path} is a folder: name a file for the report, e.g. {path / REPORT}")
    if path.exists():
        with path.open("rb") as file:
            if not is_ours(file.read(4096)):
                raise RunFolderError(f"{path} is there already and is no report of ours: move it, or give another name")
    try:
        text = make()
    except DAMAGE as error:
        raise RunFolderError(f"no report for {path.parent}: its files are damaged ({one_line(error)})") from error
    replace_file(path, text.encode("utf-8", "replace"))
    return path


def try_to_write(make: Callable[[], Path], warn: Callable[[str], object]) -> Path | None:
    """For the end of a run, which does not fail because of its report."""
    try:
        return make()
    except (SubbitError, OSError) as error:
        told = str(error)
    except Exception as error:  # A bug of the report, and the run is finished all the same.
        told = one_line(error)
    warn(f"no report was written: {told}")
    return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict) or not found.get("methods") or not found.get("runs"):
        raise RunFolderError(f"{path} is no comparison: subbit compare writes one")
    return found
