"""`subbit report`: makes report.html of a run folder, finished or not, or of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subbit.cli.consoles import errors, say

NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html")]


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo, or that of a comparison, e.g. runs")],
    out: Annotated[Path | None, typer.Option(help="Where to write; default: report.html in the folder")] = None,
) -> None:
    """Make the report of a run or a comparison: one HTML file that needs no network.

    A run need not be finished: the report shows what is in the folder.

    [bold]subbit report runs/demo[/bold]
    [bold]subbit report runs --out comparison.html[/bold]
    """
    from subbit.pages.write_report import write_report

    _tell(write_report(folder, out))


def report_at_end(folder: Path, left_out: bool, *, quiet: bool = False) -> None:
    """After a run or a comparison. What goes wrong is a warning: the results are written. `quiet`: for JSON alone."""
    if left_out:
        return
    from subbit.pages.write_report import try_to_write, write_report

    path = try_to_write(lambda: write_report(folder), _warn)
    if path is not None and not quiet:
        _tell(path)


def _tell(path: Path) -> None:
    say(f"report in {path}")


def _warn(told: str) -> None:
    errors.print(f"warning: {told}", highlight=False, markup=False, soft_wrap=True)
