"""`subbit doctor`: whether this machine can run jobs, and what to do where it cannot."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from subbit.cli.consoles import console, print_json, say
from subbit.cli.options import AsJson, Quiet
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with

if TYPE_CHECKING:
    from subbit.setup.findings import Finding

INDENT = 8
STYLES = {"ok": "green", "missing": "yellow", "broken": "bold red"}


def doctor(
    folder: Annotated[Path, typer.Option(help="Folder of the runs")] = Path("runs"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Look at this machine: packages, devices, kernels, folders, data sets, bundled models.

    Exit status 0: runs of the bundled model work. 1: something that they need is broken; the line says what to do.

    [bold]subbit doctor[/bold]
    """
    found: list[Finding] = []
    with Teller(quiet=quiet):
        for finding in _findings(folder):
            found.append(finding)
            if not quiet and not as_json:
                _print(finding)
    broken = [finding for finding in found if finding.stops_runs]
    if as_json:
        rows = [{**asdict(finding), "state": finding.state} for finding in found]
        print_json({"works": not broken, "findings": rows})
    elif broken:
        say(f"broken: {', '.join(finding.name for finding in broken)}")
    else:
        say("subbit run works here")
        if not quiet:
            say("next: subbit init --data FOLDER   # of CLASS/*.png, or a table; without --data it asks")
    raise typer.Exit(1 if broken else 0)


def _findings(folder: Path) -> Iterator[Finding]:
    """What is quick comes first; torch, which takes seconds to import, last."""
    from subbit.setup import installed, this_machine

    yield from installed.python_findings()
    yield from installed.package_findings()
    yield from this_machine.folder_findings(folder)
    yield from this_machine.dataset_findings()
    busy_with("loading PyTorch")
    torch = list(this_machine.torch_findings())
    yield from torch
    if all(finding.ok for finding in torch):
        busy_with("checking the bundled models")
        yield from this_machine.model_findings()
        busy_with("looking for compiled kernels")
        yield from this_machine.kernel_findings()


def _print(finding: Finding) -> None:
    lines = [f"{finding.name}: {finding.found}", *([] if finding.ok else [finding.advice])]
    margin, width = " " * INDENT, max(2 * INDENT, console.width - 1)
    shown = "\n".join(textwrap.fill(line, width, initial_indent=margin, subsequent_indent=margin) for line in lines)
    state = (finding.state.ljust(INDENT), STYLES[finding.state])
    say(Text.assemble(state, shown[INDENT:]))
