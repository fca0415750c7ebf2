"""`subbit paper`: every table and figure of the five papers, printed values beside ours, and the runs behind them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from subbit.cli.bench import find_clone
from subbit.core.errors import ConfigError

PROTOCOLS, RESULTS = Path("experiments/papers"), Path("benchmarks/results/papers")
RATES = "rates.json"
LIST = "list"
console, progress = Console(emoji=False), Console(stderr=True, emoji=False)
STYLES = {"holds": "green", "holds in shape": "green", "does not hold": "red", "undecided": "yellow"}


def paper(
    words: Annotated[
        list[str] | None, typer.Argument(help="LIST; or a paper (000 to 004) and tables or figures of it; or '*'")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Run what is missing at this scale: paper, cpu or smoke; without it, only show")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would run and how long it would take")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; default: that of the protocol")] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="Minutes: no run starts that would exceed them")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")] = False,
    protocols: Annotated[Path | None, typer.Option(help="Folder of the protocols; default: that of the clone")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder of the results; default: that of the clone")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write tables and plots to this HTML file")] = None,
) -> None:
    """Ask of a printed value of the five papers whether it is true.

    What is known is shown with a verdict: by runs, by computation, or by results that are committed already. With
    --scale the runs that are missing are made first; after an interruption the same command goes on.

    [bold]subbit paper LIST[/bold]   every table and figure, and what became of it
    [bold]subbit paper 003 table-9[/bold]
    [bold]subbit paper 000 table-2 --scale paper --dry-run[/bold]   what the paper's own protocol would take
    [bold]subbit paper '*' --scale smoke[/bold]   does everything run?
    [bold]subbit paper 002 --report zampling.html[/bold]   tables and plots of a paper, as one file
    """
    from subbit.papers.protocols import SCALES, read_protocols

    root = find_clone(Path.cwd())
    if root is None and (protocols is None or results is None):
        raise ConfigError("protocols are in a clone of the repository: change into it, or give --protocols, --results")
    protocols = (protocols or (root or Path()) / PROTOCOLS).absolute()
    results = (results or (root or Path()) / RESULTS).absolute()
    report = None if report is None else report.absolute()
    if root is not None:
        os.chdir(root)  # Paths in protocols are relative to the clone.
    if scale is not None and scale not in SCALES:
        raise ConfigError(f"--scale {scale}: needs one of {', '.join(SCALES)}")
    words = [] if words is None or [word.lower() for word in words] == [LIST] else words
    if report is not None and (not words or dry_run):
        raise ConfigError("--report is for tables and figures: name a paper, or '*' for all, and leave out --dry-run")
    known = read_protocols(protocols)
    if not words:
        _list(known, results, root or Path(), as_json)
        return
    chosen = _chosen(known, words)
    if dry_run:
        _plan(chosen, scale or "paper", seeds, results, as_json)
        return
    if scale is not None:
        _make(chosen, scale, seeds, budget, results)
    elif seeds is not None or budget is not None:
        raise ConfigError("--seeds and --budget are for runs: add --scale, e.g. --scale cpu")
    found = _found(chosen, scale, results, root or Path())
    if report is not None:
        _write_report(report, found)
    _show(found, as_json)


def _chosen(known: dict[str, Any], words: list[str]) -> list[Any]:
    """A paper, then names of its tables; `*` stands for all papers, or for all tables of the paper."""
    papers = sorted({protocol.paper for protocol in known.values()})
    number, names = words[0], words[1:]
    if number == "*" and not names:
        return [*known.values()]
    if number not in papers:
        raise ConfigError(f"{number}: no paper of ours; needs LIST, '*' or one of {', '.join(papers)}")
    own = {protocol.name: protocol for protocol in known.values() if protocol.paper == number}
    for name in names:
        if name not in own and name != "*":
            raise ConfigError(f"paper {number} has no {name!r}; it has {', '.join(own)}")
    return [protocol for name, protocol in own.items() if not names or name in names or "*" in names]


def _list(known: dict[str, Any], results: Path, root: Path, as_json: bool) -> None:
    progress.print(f"{len(known)} tables and figures; some numbers are computed, which takes seconds", highlight=False)
    from subbit.papers.best_known import best_known

    found = [best_known(protocol, results, root) for protocol in known.values()]
    if as_json:
        records = [each.as_record() for each in found]
        print(json.dumps([{key: value for key, value in each.items() if key != "cells"} for each in records], indent=2))
        return
    table = Table("paper", "name", "what", "verdict", "values")
    for each in found:
        header = each.protocol.header
        verdict = "nothing to measure" if header.drawing else each.verdict
        table.add_row(
            *(each.protocol.paper, each.protocol.name, header.what),
            *(f"[{STYLES[verdict]}]{verdict}[/]" if verdict in STYLES else verdict, each.counts),
        )
    Console(width=max(console.width, 140), emoji=False).print(table)


def _plan(chosen: list[Any], scale: str, seeds: int | None, results: Path, as_json: bool) -> None:
    from subbit.papers.costs import estimate, read_rates
    from subbit.papers.paper_runs import missing_runs

    rates = read_rates(results / RATES)
    rows = []
    for protocol in chosen:
        cost = estimate(protocol, scale, rates)
        missing = [str(run) for run in missing_runs(results, [protocol], scale, seeds)]
        rows.append({"protocol": protocol.label, "cost": str(cost), "core_hours": cost.core_hours, "missing": missing})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        text = f"{row['protocol']} at scale {scale}: {row['cost']}"
        console.print(f"{text}; {len(row['missing'])} missing", highlight=False, markup=False, soft_wrap=True)


def _make(chosen: list[Any], scale: str, seeds: int | None, budget: float | None, results: Path) -> None:
    from subbit.papers.paper_runs import missing_runs, run_missing

    def tell(line: str) -> None:
        progress.print(line, highlight=False, markup=False, soft_wrap=True)

    runs = missing_runs(results, chosen, scale, seeds)
    made = [*run_missing(results, runs, None if budget is None else 60 * budget, tell)]
    failed = [run for run in made if "error" in run]
    tell(f"{len(made)} of {len(runs)} runs made" + (f", {len(failed)} of them failed" if failed else ""))
    if scale == "smoke" and failed:
        raise ConfigError(f"{len(failed)} runs failed: {failed[0]['row']}: {failed[0]['error']}")


def _found(chosen: list[Any], scale: str | None, results: Path, root: Path) -> list[Any]:
    from subbit.papers.best_known import best_known
    from subbit.papers.paper_tables import judged

    return [judged(each, scale, results, root) if scale else best_known(each, results, root) for each in chosen]


def _write_report(path: Path, found: list[Any]) -> None:
    from subbit.pages.paper_page import paper_page
    from subbit.pages.write_report import write_page

    where = write_page(path, lambda: paper_page(found))
    progress.print(f"report in {where}", highlight=False, markup=False, soft_wrap=True)


def _show(found: list[Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps([each.as_record() for each in found], indent=2))
        return
    for each in found:
        _print(each)


def _print(found: Any) -> None:
    from subbit.papers.best_known import ours_text

    header, label = found.protocol.header, f"{found.protocol.paper} {found.protocol.name}"
    title = f"{label}: {header.what}"
    if header.drawing:
        console.print(f"{title}. Nothing to measure.", highlight=False, markup=False, soft_wrap=True)
        return
    table = Table("what", "printed", "ours", "verdict", "", title=title, title_justify="left")
    for cell in found.cells:
        verdict = f"[{STYLES[cell.verdict]}]{cell.verdict}[/]" if cell.verdict in STYLES else cell.verdict
        metric = "" if cell.metric in ("", "computed") else f" ({cell.metric})"
        table.add_row(f"{cell.says}{metric}", cell.printed, ours_text(cell), verdict, cell.why)
    Console(width=max(console.width, 130), emoji=False).print(table)
    lines = [f"{found.verdict}: {found.counts}. Scale: {found.scale}."]
    lines += [f"Smaller than in the paper: {'; '.join(found.shrunk)}."] if found.shrunk else []
    lines += [f"Note: {header.note}"] if header.note else []
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
