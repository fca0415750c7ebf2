"""`subbit arena`: runs what is missing of the arena's jobs, and shows the table of committed results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from subbit.cli.bench import find_clone
from subbit.cli.consoles import console, note, print_json, say
from subbit.cli.options import AsJson, Quiet
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.errors import ConfigError

JOBS, RESULTS = Path("experiments/arena"), Path("benchmarks/results/arena")


def arena(
    words: Annotated[
        list[str] | None, typer.Argument(help="Jobs and methods to run; none: only show the table")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the table of these jobs and methods, run nothing")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the jobs, their methods and the settings tried")] = False,
    dry_run: Annotated[bool, typer.Option(help="Say what would run and how long it would take")] = False,
    redo: Annotated[bool, typer.Option(help="Forget the results of these jobs and methods first")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; default: that of the job")] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="Minutes: no run starts that would exceed them")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: those of the job")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    jobs: Annotated[Path | None, typer.Option(help="Folder of the jobs; default: that of the clone")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder of the results; default: that of the clone")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write the tables and plots to this HTML file")] = None,
) -> None:
    """Run jobs of the arena for several methods, each with the same chance: settings are chosen on a validation split.

    What exists is not run again; after an interruption the same command goes on. Data: make arena-data

    [bold]subbit arena[/bold]   the table of all committed results
    [bold]subbit arena vision fedavg deltamask --budget 60[/bold]
    [bold]subbit arena vision skewed --dry-run[/bold]
    [bold]subbit arena --report arena.html[/bold]   tables and plots of all committed results, as one file
    """
    root = find_clone(Path.cwd())
    if root is None and (jobs is None or results is None):
        raise ConfigError(
            "the arena is in a clone of the repository: change into its folder, or give --jobs, --results"
        )
    jobs, results = (jobs or (root or Path()) / JOBS).absolute(), (results or (root or Path()) / RESULTS).absolute()
    report = None if report is None else report.absolute()
    if root is not None:
        os.chdir(root)  # Paths in job files are relative to the clone.
    with Teller(quiet=quiet) as teller:
        if not quiet:
            note(f"arena: loading PyTorch, then the jobs of {jobs}")
        busy_with("loading PyTorch")
        from subbit.arena.jobs import read_jobs
        from subbit.arena.races import forget, run_missing

        known = read_jobs(jobs)
        for job in known.values() if workers is not None else ():
            job.base["workers"] = workers
        chosen = _chosen(known, words or [])
        plan = [(job, entry, seeds or job.header.seeds) for job, entry in chosen]
        runs = bool(words) and not (show or names or dry_run)
        if runs:
            for job, entry in chosen if redo else ():
                forget(results, job, entry)
            for _ in run_missing(results, plan, None if budget is None else 60 * budget, teller.line):
                pass
    if names:
        _list(chosen, as_json)
        return
    if dry_run:
        _print_plan(results, plan, as_json)
        return
    if not runs and (redo or budget is not None or seeds is not None):
        raise ConfigError("name the jobs or methods to run, e.g. subbit arena vision --budget 60")
    from subbit.arena.standings import as_record, standing

    shown = {job.name: standing(results, job) for job, _ in chosen}
    if report is not None:
        _write_report(report, [*shown.values()])
    if as_json:
        print_json([as_record(found) for found in shown.values()])
        return
    for found in shown.values():
        (_print_lines if quiet else _print)(found)


def _write_report(path: Path, shown: list[Any]) -> None:
    from subbit.pages.arena_page import arena_page
    from subbit.pages.write_report import write_page

    note(f"report in {write_page(path, lambda: arena_page(shown))}")


def _chosen(jobs: dict[str, Any], words: list[str]) -> list[tuple[Any, Any]]:
    """Words that are jobs, and words that are methods of these, or of all jobs if none is named."""
    labels = [word for word in words if word not in jobs]
    named = [jobs[word] for word in words if word in jobs] or [*jobs.values()]
    for label in labels:
        if not any(label in job.entries for job in named):
            raise ConfigError(
                f"{label}: neither a job ({', '.join(jobs)}) nor a method of {', '.join(job.name for job in named)}: "
                "subbit arena --list"
            )
    return [(job, entry) for job in named for entry in job.entries.values() if not labels or entry.label in labels]


def _list(chosen: list[tuple[Any, Any]], as_json: bool) -> None:
    rows = [
        {
            "job": job.name,
            "method": entry.label,
            "run": entry.run,
            "settings": list(entry.settings),
            "after": entry.after,
        }
        for job, entry in chosen
    ]
    if as_json:
        print_json(rows)
        return
    for job in {job.name: job for job, _ in chosen}.values():
        needs = f" Needs {job.header.needs}." if job.header.needs else ""
        console.print(f"[bold]{job.name}[/bold]: {job.header.what}.{needs}", highlight=False, soft_wrap=True)
        for row in rows:
            if row["job"] == job.name:
                tried = f"   tries {'; '.join(row['settings'])}" if len(row["settings"]) > 1 else ""
                console.print(f"  {row['method']}: {row['run']}{tried}", highlight=False, markup=False, soft_wrap=True)


def _print_plan(results: Path, plan: list[tuple[Any, Any, int]], as_json: bool) -> None:
    from subbit.arena.races import estimate, races_missing

    races = [race for job, entry, seeds in plan for race in races_missing(results, job, entry, seeds)]
    minutes = [estimate(results, race) / 60 for race in races]
    if as_json:
        rows = [{"run": str(race), "minutes": each} for race, each in zip(races, minutes, strict=True)]
        print_json({"runs": rows, "minutes": sum(minutes)})
        return
    for race, each in zip(races, minutes, strict=True):
        console.print(f"{race}: about {each:.1f} min", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{len(races)} runs, about {sum(minutes) / 60:.1f} hours", highlight=False)


def _print(found: Any) -> None:
    from subbit.arena.standings import HEADINGS, cells

    score = next((row.score_name for row in found.rows if row.score_name), "score")
    table = Table(title=f"{found.job.name}: {found.job.header.what}", title_justify="left")
    for heading in HEADINGS:
        table.add_column(score if heading == "score" else heading, justify="left" if heading == "method" else "right")
    for row in found.rows:
        table.add_row(*cells(row), style="dim" if row.role != "method" else None)
    Console(width=max(console.width, 120)).print(table)


def _print_lines(found: Any) -> None:
    for row in found.rows:
        score = "not measured" if row.score is None else f"{row.score_name} {row.score:.4f}"
        say(f"{found.job.name} {row.method}: {score}")
