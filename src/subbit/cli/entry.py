"""The command line. Every command has `--help` with an example; every error is one line that says what to do."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from subbit import __version__
from subbit.cli.arena_command import arena
from subbit.cli.bench import OWN_WORDS, bench
from subbit.cli.board_command import board
from subbit.cli.compare_command import compare
from subbit.cli.consoles import errors
from subbit.cli.doctor_command import doctor
from subbit.cli.export_command import export
from subbit.cli.flower_commands import flower_app
from subbit.cli.init_command import init
from subbit.cli.list_command import list_
from subbit.cli.look_commands import check, compile_, inspect, show
from subbit.cli.paper_command import paper
from subbit.cli.params import params
from subbit.cli.predict_command import predict
from subbit.cli.report_command import report
from subbit.cli.run_commands import resume, run
from subbit.cli.zampling_commands import zampling_app
from subbit.core.errors import Interrupted, RunFolderError, SubbitError
from subbit.core.interrupts import remember_interrupts
from subbit.papers.domain_gap import domain_gap

app = typer.Typer(
    help="Federated fine-tuning below one bit per parameter, both ways.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(init)
app.command()(run)
app.command()(resume)
app.command()(show)
app.command()(compare)
app.command(name="list")(list_)
app.command()(predict)
app.command()(report)
app.command()(export)
app.command()(check)
app.command()(doctor)
app.command()(params)
app.command()(arena)
app.command()(paper)
app.command()(board)
app.command(context_settings=OWN_WORDS)(bench)
app.command(name="compile")(compile_)
app.command()(inspect)
app.command()(domain_gap)
app.add_typer(flower_app, name="flower")
app.add_typer(zampling_app, name="zampling")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"subbit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Federated fine-tuning below one bit per parameter, both ways."""


def main() -> None:
    """Entry point: expected errors become one line and an exit status, others a traceback."""
    # Before numpy is imported, also for workers: OpenBLAS starts a thread for every core, and each spins for 2^26
    # cycles before it sleeps. 2^4 are enough.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    remember_interrupts()
    try:
        # Also for `python -m subbit`: the name is what shells complete.
        app(prog_name="subbit")
    except Interrupted as interrupted:
        errors.print(escape(str(interrupted)), soft_wrap=True, highlight=False)
        sys.exit(interrupted.exit_status)
    except SubbitError as error:
        errors.print(f"error: {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, SystemExit) as ended:
        # Typer turns an unhandled interrupt into a silent exit.
        if isinstance(ended, SystemExit) and ended.code != Interrupted.exit_status:
            raise
        errors.print("interrupted; if a round was finished, subbit resume goes on from there")
        sys.exit(Interrupted.exit_status)
    except OSError as error:
        # A full disk, missing permissions, an invalid path: a traceback would not help.
        where = f"{error.filename}: " if error.filename else ""
        errors.print(f"error: {escape(where + (error.strerror or str(error)))}", soft_wrap=True, highlight=False)
        sys.exit(RunFolderError.exit_status)
