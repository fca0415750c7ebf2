"""The command line. Every command has `--help` with an example; every error is one line that says what to do."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from subbit import __version__
from subbit.cli.arena_command import arena
from subbit.cli.bench import OWN_WORDS, bench
from subbit.cli.export_command import export
from subbit.cli.flower_commands import flower_app
from subbit.cli.options import PluginFiles
from subbit.cli.paper_command import paper
from subbit.cli.params import params
from subbit.cli.predict_command import predict
from subbit.cli.zampling_commands import zampling_app
from subbit.core.errors import ConfigError, Interrupted, RunFolderError, SubbitError
from subbit.papers.domain_gap import domain_gap

app = typer.Typer(
    help="Federated fine-tuning below one bit per parameter, both ways.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(flower_app, name="flower")
app.add_typer(zampling_app, name="zampling")
app.command()(predict)
app.command()(export)
app.command(context_settings=OWN_WORDS)(bench)
app.command()(params)
app.command()(arena)
app.command()(paper)
app.command()(domain_gap)
# No emoji: `model=net:key:` in an error is no key.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"subbit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Options of `subbit` itself, before the command."""


Words = Annotated[list[str] | None, typer.Argument(help="A TOML file and key=value words, e.g. rounds=5 kappa=0.5")]


def main() -> None:
    """Entry point: expected errors become one line and an exit status, others a traceback."""
    try:
        app()
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


def _file_and_words(words: list[str] | None) -> tuple[dict[str, Any], list[str]]:
    from subbit.config.resolve import read_toml

    words = words or []
    if words and "=" not in words[0]:
        return read_toml(Path(words[0])), words[1:]
    for word in words:
        if word.endswith(".toml") and "=" not in word:
            raise ConfigError(f"{word}: a TOML file comes first, before key=value words")
    return {}, words


def _announce(values: dict[str, Any], words: list[str]) -> None:
    """The first line of a run, before anything that takes long is imported. An unknown method is left to the error."""
    from subbit.config.schema import RunConfig
    from subbit.core.values import split_assignment
    from subbit.methods.names import METHODS

    given = {**values, **dict(split_assignment(word) for word in words)}
    method, model, dataset = (str(given.get(key, getattr(RunConfig, key))) for key in ("method", "model", "dataset"))
    if METHODS.has(method):
        errors.print(f"{method} on {model}, {dataset}: loading PyTorch", highlight=False, markup=False, soft_wrap=True)


def _build_and_try(settings: Any) -> Any:
    """The problem, after a trial of the job, so that one that cannot work leaves no folder behind."""
    from dataclasses import replace

    from subbit.core.errors import ConfigError
    from subbit.runtime.trial import try_job

    if settings.run.engine == "deployment":
        raise ConfigError(
            "engine=deployment: such a run starts, and goes on where it stopped, with flwr run APP NAME, "
            "as subbit flower certs prints it"
        )
    # What makes no difference to the problem is left out, so that the contenders of a comparison share it.
    problem = _problem(replace(settings.run, name="auto", method="", preset="default"))
    try_job(problem, settings)
    return problem


@lru_cache(maxsize=1)
def _problem(run: Any) -> Any:
    from subbit.runtime.problem import build_problem

    return build_problem(run)


def _run(settings: Any, *, quiet: bool = False, resume: Path | None = None) -> tuple[dict[str, Any], Path]:
    """Build the problem and run it with a progress bar; returns the summary and the run folder."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from subbit.runtime.folder import RunFolder
    from subbit.runtime.run import Progress as RoundProgress
    from subbit.runtime.run import run_job

    problem = _build_and_try(settings)
    split = problem.split_summary().as_text()
    folder = RunFolder.open(resume) if resume else RunFolder.create(settings, split)
    if not quiet:
        console.print(split, highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=errors,
    )
    with folder.interruptible(), bar:
        line = bar.add_task(folder.settings.run.name, total=settings.run.rounds, note="fitting the head")

        def report(progress: RoundProgress) -> None:
            score = "" if progress.score is None else f"{progress.score_name} {progress.score:.4f}  "
            note = f"{score}up {progress.uplink_bpp:.4f} bpp  {progress.total_bytes / 1e6:.2f} MB"
            bar.update(line, completed=progress.round_number + 1, note=note)

        if settings.run.engine == "flower":
            from subbit.flower.simulation import simulate

            return simulate(problem, folder, resume=resume is not None, report=report).summary, folder.path
        return run_job(problem, folder.settings, folder, resume=resume is not None, report=report).summary, folder.path


@app.command()
def run(words: Words = None, plugin: PluginFiles = None) -> None:
    """Run one federated job.

    [bold]subbit run[/bold]   DeltaMask on the bundled transformer and digits, every key at its default
    [bold]subbit run experiments/demo.toml rounds=5 workers=2[/bold]
    [bold]subbit run method=fedavg select=head dataset=fashion-mnist[/bold]
    [bold]subbit run --plugin examples/sign_vote.py method=sign-vote[/bold]
    """
    from subbit.config.resolve import resolve

    values, given = _file_and_words(words)
    _announce(values, given)
    _print_summary(*_run(resolve(values, given)))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo")], plugin: PluginFiles = None
) -> None:
    """Resume an interrupted run after its last finished round. The result equals that of an uninterrupted run.

    A run with plugins needs the same files again: code is only run if you name it, never because it is in a folder.

    [bold]subbit resume runs/demo[/bold]
    """
    from subbit.core.plugins import loaded_plugins
    from subbit.runtime.folder import RunFolder

    opened = RunFolder.open(folder)
    settings = opened.settings
    if opened.is_finished():
        console.print(f"{folder} is finished: there is nothing to go on with", highlight=False, soft_wrap=True)
        _print_summary(opened.read_summary(), folder)
        return
    opened.refuse_given()
    for each in loaded_plugins():
        if f"{each.name}@" in (settings.run.plugins or ""):
            console.print(f"runs the code of {each.path}, {each}", highlight=False, markup=False, soft_wrap=True)
    _print_summary(*_run(settings, resume=folder))


@app.command()
def show(folder: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo")]) -> None:
    """Show the results of a finished run.

    [bold]subbit show runs/demo[/bold]
    """
    from subbit.runtime.events import MainRound
    from subbit.runtime.folder import RunFolder

    opened = RunFolder.look(folder)
    summary = opened.read_summary()
    table = Table(title=str(folder))
    for heading in (
        "round",
        summary.get("score_name", "accuracy"),
        "answered",
        "failed",
        "loss",
        "MB so far",
        "seconds",
    ):
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
    _print_summary(summary, folder)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo, or a plugin, e.g. my_method.py")],
    plugin: PluginFiles = None,
) -> None:
    """Verify the checksums of a run folder, or run the conformance suite on what a plugin registers.

    [bold]subbit check runs/demo[/bold]   changes nothing
    [bold]subbit check my_method.py[/bold]   trains small networks in a temporary folder
    """
    if path.suffix == ".py":
        from subbit.conformance.check_plugin import check_plugin

        raise typer.Exit(0 if check_plugin(path, console) else 1)
    from subbit.runtime.check import check_run

    findings = check_run(path)
    damaged = [finding for finding in findings if finding.damage is not None]
    for finding in damaged:
        console.print(f"damaged: {escape(finding.what)}: {escape(finding.damage or '')}", soft_wrap=True)
    console.print(f"{len(findings)} files and sums checked, {len(damaged)} damaged", highlight=False)
    if damaged:
        raise typer.Exit(RunFolderError.exit_status)


@app.command()
def compare(
    methods: Annotated[list[str], typer.Argument(help="Methods, then key=value words for all of them")],
    config: Annotated[Path | None, typer.Option(help="TOML file of the common job")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from seed= (0) on")] = 1,
    target: Annotated[float | None, typer.Option(help="Accuracy up to which megabytes are counted")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="With floors and ceilings, and the gap closed")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plugin: PluginFiles = None,
) -> None:
    """Run the same job for several methods: one table, and a plot of the score against bytes.

    A method may carry its own settings after a colon, with commas between them:

    [bold]subbit compare fedpm deltamask deltamask:preset=paper --config experiments/demo.toml rounds=5[/bold]
    [bold]subbit compare fedavg fedavg:optimizer=adam,betas=0.8,0.9,epochs=2[/bold]   betas is a pair
    [bold]subbit compare deltamask head-alone central[/bold]   a floor, a ceiling, and the share of the gap closed
    """
    from subbit.config.resolve import read_toml
    from subbit.core.files import replace_file
    from subbit.report.compare import compare as run_comparison
    from subbit.report.compare import comparison_table, contender_settings, parse_contender, with_baselines
    from subbit.report.frontier import frontier_plot

    words = [word for word in methods if "=" in word.partition(":")[0]]
    contenders = [parse_contender(word) for word in methods if word not in words]
    values = read_toml(config) if config else {}
    contenders = with_baselines(contenders, values, words) if baselines else contenders
    comparison = run_comparison(
        contenders, values, words, seeds, target, lambda settings: _run(settings, quiet=True)[0], _build_and_try
    )
    path = Path(contender_settings(contenders[0], contenders, values, words, 0).run.folder) / "comparison.json"
    replace_file(path, (json.dumps(comparison, indent=2) + "\n").encode())
    replace_file(path.with_suffix(".svg"), frontier_plot(comparison).encode())
    if as_json:
        print(json.dumps(comparison, indent=2))
    else:
        # A narrow terminal wraps lines, which is better than truncated numbers.
        Console(width=max(console.width, 120)).print(comparison_table(comparison))
        told = f"every run is a folder under {path.parent}/, the numbers are in {path}, a plot is beside it"
        console.print(told, highlight=False)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, codecs, models, datasets, partitions, aggregators, ...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plugin: PluginFiles = None,
) -> None:
    """List the available methods, codecs, models etc.

    [bold]subbit list methods[/bold]
    [bold]subbit list codecs --json[/bold]
    """
    from subbit.report.catalogue import catalogue

    rows = catalogue(what)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        console.print(f"there are no {what}")
        return
    table = Table()
    for heading in rows[0]:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    console.print(table)


@app.command(name="compile")
def compile_() -> None:
    """Compile all kernels once, so that no run has to wait for it (about half a minute).

    They are kept beside the source of subbit, or in your home if that folder cannot be written.

    [bold]subbit compile[/bold]
    """
    from subbit.conformance.compile_kernels import compile_kernels

    with errors.status("compiling kernels"):
        files = compile_kernels()
    kept = sorted({str(file.parent) for file in files.values() if file.exists()})
    if not kept:
        raise RunFolderError("no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one that can")
    console.print(f"{len(files)} kernels in {', '.join(kept)}", highlight=False, soft_wrap=True)


@app.command()
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


def _print_summary(summary: dict[str, Any], folder: Path) -> None:
    table = Table(show_header=False, title=f"{summary['method']} on {summary['model']}, {summary['dataset']}")
    table.add_column()
    table.add_column(justify="right")
    name = summary.get("score_name", "accuracy")
    score = "score" if "score" in summary else "accuracy"  # Runs of earlier versions only have accuracies.
    for network in ("expected", "sampled", "thresholded"):
        if f"{score}_{network}" in summary:
            table.add_row(f"{name}, {network} network", f"{summary[f'{score}_{network}']:.4f}")
    if f"{score}_expected" not in summary:
        table.add_row(name, f"{summary[score]:.4f}")
    start = "before (head alone)" if name == "accuracy" else "before"
    table.add_row(f"{name} {start}", f"{summary[f'{score}_before']:.4f}")
    table.add_row("trained parameters", f"{summary['parameters']:,}")
    table.add_row("uplink, bits per parameter", f"{summary['uplink_bpp']:.4f}")
    table.add_row("downlink, bits per parameter", f"{summary['downlink_bpp']:.4f}")
    for name in ("uplink", "downlink", "one_off"):
        table.add_row(f"{name.replace('_', '-')} MB", f"{summary[f'{name}_bytes'] / 1e6:.3f}")
    if "link_hours" in summary:
        table.add_row(f"hours on {summary['link_mbit']:g} Mbit/s", f"{summary['link_hours']:.4f}")
    if "false_flips_per_upload" in summary:
        table.add_row("false flips per upload", f"{summary['false_flips_per_upload']:.1f}")
    if "privacy" in summary:
        table.add_row("privacy", summary["privacy"]["guarantee"])
    if summary["failed_clients"]:
        causes = ", ".join(f"{count} {cause}" for cause, count in summary["failures"].items())
        table.add_row("failed client turns", f"{summary['failed_clients']} ({causes})")
    if "not_evaluated" in summary:
        causes = ", ".join(f"{count} {cause}" for cause, count in summary["not_evaluated"].items())
        table.add_row("clients that could not be evaluated", causes)
    table.add_row("seconds", f"{summary['seconds']:.1f}")
    console.print(table)
    console.print(f"model {summary['model_sha256'][:16]}, results in {folder}/", highlight=False)
    for advice in summary.get("warnings", ()):
        errors.print(f"warning: {escape(advice['what'])}", soft_wrap=True, highlight=False)
