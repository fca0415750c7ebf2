"""Commands that look at files: `show`, `check`, `inspect`; and `compile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from subbit.cli.completion import complete_folder
from subbit.cli.consoles import console, note, print_json, say
from subbit.cli.options import AsJson, PluginFiles, Quiet, RunPath
from subbit.cli.summary_lines import print_summary, result_line
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.errors import RunFolderError


def show(folder: RunPath, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Show the results of a finished run.

    [bold]subbit show runs/demo[/bold]
    [bold]subbit show runs/demo --json[/bold]   its summary.json
    """
    from subbit.runtime.events import MainRound
    from subbit.runtime.folder import RunFolder

    opened = RunFolder.look(folder)
    summary = opened.read_summary()
    if as_json:
        print_json(summary)
        return
    if quiet:
        say(result_line(summary, folder))
        return
    table = Table(title=escape(str(folder)))
    score = summary.get("score_name", "accuracy")
    for heading in ("round", score, "answered", "failed", "loss", "MB so far", "seconds"):
        table.add_column(heading, justify="right")
    for event in opened.read_events():
        if isinstance(event, MainRound):
            loss = event.observations.get("loss")
            table.add_row(
                str(event.round),
                "" if event.score is None else f"{event.score:.4f}",
                str(event.answered),
                str(len(event.failures)),
                "" if loss is None else f"{loss:.4f}",
                f"{event.total_bytes / 1e6:.3f}",
                f"{event.seconds:.1f}",
            )
    console.print(table)
    print_summary(summary, folder)
    if (folder / "report.html").is_file():
        say(f"report in {folder / 'report.html'}")


def check(
    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, e.g. runs/demo, or a plugin, e.g. my_method.py", autocompletion=complete_folder
        ),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
    plugin: PluginFiles = None,
) -> None:
    """Verify the checksums of a run folder, or run the conformance suite on what a plugin registers.

    [bold]subbit check runs/demo[/bold]   changes nothing
    [bold]subbit check my_method.py[/bold]   trains small networks in a temporary folder
    """
    if not quiet:
        note(f"checking {path}: loading PyTorch")
    with Teller(quiet=quiet):
        busy_with("loading PyTorch")
        if path.suffix == ".py":
            _check_plugin(path, quiet, as_json)
            return
        from subbit.runtime.check import check_run

        findings = check_run(path)
    damaged = [finding for finding in findings if finding.damage is not None]
    if as_json:
        rows = [{"what": finding.what, "damage": finding.damage} for finding in damaged]
        print_json({"path": str(path), "checked": len(findings), "damaged": rows})
    else:
        for finding in () if quiet else damaged:
            say(f"damaged: {finding.what}: {finding.damage}")
        say(f"{len(findings)} files and sums checked, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(RunFolderError.exit_status)


def _check_plugin(path: Path, quiet: bool, as_json: bool) -> None:
    from subbit.conformance.check_plugin import check_plugin

    def tell(line: str) -> None:
        if not quiet and not as_json:
            say(line)

    rows = check_plugin(path, tell)
    failed = sum(row["reason"] is not None for row in rows)
    if as_json:
        print_json({"path": str(path), "held": len(rows) - failed, "failed": failed, "laws": rows})
    else:
        say(f"{len(rows) - failed} laws hold, {failed} do not")
    raise typer.Exit(1 if failed else 0)


def inspect(frame: Annotated[Path, typer.Argument(help="A file that holds one frame")]) -> None:
    """Describe a frame without decoding its payload.

    [bold]subbit inspect tests/codecs/golden/rice.bin[/bold]
    """
    from subbit.wire.inspect import describe_frame

    try:
        data = frame.read_bytes()
    except OSError as error:
        raise RunFolderError(f"cannot read {frame}: {error.strerror}") from None
    console.print(describe_frame(data), highlight=False, markup=False)


def compile_() -> None:
    """Compile all kernels once, so that no run has to wait for it (about half a minute).

    They are kept beside the source of subbit, or in your home if that folder cannot be written.

    [bold]subbit compile[/bold]
    """
    note("compiling kernels")
    with Teller():
        busy_with("loading PyTorch")
        from subbit.conformance.compile_kernels import compile_kernels, compile_modules

        compile_modules()
        files = compile_kernels()
    kept = sorted({str(file.parent) for file in files.values() if file.exists()})
    if not kept:
        raise RunFolderError("no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one that can")
    say(f"{len(files)} kernels in {', '.join(kept)}")
