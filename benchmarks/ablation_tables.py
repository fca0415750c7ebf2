"""The tables of `ablations.py` for docs/flagship.md. Only results count whose keys are still those of the row."""

from __future__ import annotations

import runpy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.arena.jobs import Job, read_job
from subbit.arena.kept_results import Found
from subbit.report.gap import Level, equal

SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
RUNS = runpy.run_path(str(Path(__file__).with_name("ablations.py")))
COMMAND = "python benchmarks/ablations.py"
NOT_YET = "not measured yet"
WHAT = {
    "default": "nothing",
    "no-guard": "clients send whatever they found, wherever they start",
    "no-calibration": "clients learn their own mix of classes, and all of them count",
    "random-basis": "a random subspace instead of each layer's own directions",
    "one-epoch": "one epoch instead of three",
    "momentum": "momentum at the server, which was dropped",
    "constant-rate": "the rate does not fall",
    "no-quantisation": "32 bits a value, both ways",
    "few-values": "a quarter of the values outside the head",
    "eden": "a code that looks at one value at a time, at the same bytes",
}


@dataclass(frozen=True)
class Measured:
    """A job and what is known of each row, failed runs included."""

    job: Job
    rounds: int
    rows: dict[str, list[Found]]

    def scored(self, row: str) -> list[Found]:
        return [run for run in self.rows[row] if "error" not in run]


def measured(experiment: Any, folder: Path = RUNS["JOBS"]) -> list[Measured]:
    """The jobs of which something is kept; none if there is no file."""
    found = []
    for name in RUNS["read_kept"](experiment.results):
        job = read_job(folder / f"{name}.toml")
        planned = {row: RUNS["Planned"].of(job, row, keys) for row, keys in experiment.rows.items()}
        rows = {row: RUNS["known"](experiment.results, each) for row, each in planned.items()}
        if any(rows.values()):
            (rounds,) = {each.settings.run.rounds for each in planned.values()}
            found.append(Measured(job, rounds, rows))
    return found


def ablations(found: Mapping[str, Any]) -> str:
    """A generated section: a table for each job."""
    return _tables(found["ablations"], RUNS["ABLATIONS"], COMMAND, _ablation)


def budgets(found: Mapping[str, Any]) -> str:
    """A generated section: what was really spent, from the bytes of the frames."""
    return _tables(found["budgets"], RUNS["BUDGETS"], f"{COMMAND} --budgets", _budget)


def _tables(found: Sequence[Measured], experiment: Any, command: str, table: Any) -> str:
    if not found:
        return f"Not measured yet: `{command}`."
    parts = []
    for each in found:
        whole = each.job.base.get("rounds")
        parts += [f"*{each.job.name}*, {each.rounds} rounds instead of {whole}:", table(each, experiment.rows)]
    names = {each.job.name for each in found}
    waiting = [f"`{command} {name}`" for name in experiment.jobs if name not in names]
    return "\n\n".join([*parts, *([f"Not measured yet: {', '.join(waiting)}."] if waiting else [])])


def _ablation(found: Measured, rows: Mapping[str, str]) -> str:
    lines = []
    for row, keys in rows.items():
        about = [WHAT[row], f"`{keys.replace(',', ' ')}`" if keys else "-"]
        runs = found.scored(row)
        if not runs:
            lines.append([*about, *_nothing(found.rows[row], 4)])
            continue
        versus = ["-", "-"] if row == RUNS["DEFAULT"] else compared(runs, found.scored(RUNS["DEFAULT"]))
        cpu = statistics.fmean(run["cpu"] for run in runs)
        lines.append(
            [*about, _score(runs), *versus, f"{spent(runs):,.0f}", f"{cpu:,.0f}", _seeds(found.rows[row], runs)]
        )
    name = _score_name(found)
    unit = name if name == "perplexity" else "points"
    headings = ["changed", "keys", name, f"{unit} more than the default", "told apart from it"]
    return str(SECTIONS["table"]([*headings, "bytes of a client and round", "CPU s", "seeds"], lines))


def _budget(found: Measured, rows: Mapping[str, str]) -> str:
    lines = []
    for row, keys in rows.items():
        about, runs = [f"`{keys}`"], found.scored(row)
        if not runs:
            lines.append([*about, *_nothing(found.rows[row], 3)])
            continue
        share = f"{spent(runs) / int(row):.1%}"
        cpu = statistics.fmean(run["cpu"] for run in runs)
        cells = [_score(runs), f"{spent(runs):,.1f}", share, f"{cpu:,.0f}", _seeds(found.rows[row], runs)]
        lines.append([*about, *cells])
    headings = ["budget", _score_name(found), "bytes of a client and round", "share of the budget", "CPU s", "seeds"]
    return str(SECTIONS["table"](headings, lines))


def spent(runs: Sequence[Found]) -> float:
    """Bytes of a client in a round, both ways, without what it is sent once for the head."""
    return statistics.fmean(
        (run["uplink_bytes"] + run["downlink_bytes"]) / (run["participants"] * run["rounds"]) for run in runs
    )


def compared(runs: Sequence[Found], default: Sequence[Found]) -> list[str]:
    """The difference of means and whether seeds tell them apart, as in the arena, over the seeds that both have."""
    ours, theirs = ({run["seed"]: run["score"] for run in each} for each in (runs, default))
    both = sorted({*ours} & {*theirs})
    if not both:
        return ["-", NOT_YET]
    name = runs[0]["score_name"]
    difference = statistics.fmean(ours[seed] - theirs[seed] for seed in both)
    shown = f"{difference if name == 'perplexity' else 100 * difference:+.1f}"
    if len(both) < 2:
        return [shown, "one seed"]
    one, other = (Level.of([each[seed] for seed in both], name) for each in (ours, theirs))
    if equal(one, other):
        return [shown, "no"]
    return [shown, "yes, better" if (difference > 0) == bool(runs[0]["higher_is_better"]) else "yes, worse"]


def _score(runs: Sequence[Found]) -> str:
    scores = [run["score"] for run in runs]
    return f"{statistics.fmean(scores):.3f}" + (f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else "")


def _score_name(found: Measured) -> str:
    return next((run["score_name"] for row in found.rows for run in found.scored(row)), "score")


def _seeds(runs: Sequence[Found], scored: Sequence[Found]) -> str:
    failed = len(runs) - len(scored)
    return f"{len(scored)}" + (f", {failed} failed" if failed else "")


def _nothing(runs: Sequence[Found], cells: int) -> list[str]:
    """Cells of a row without a score."""
    return ["failed" if runs else NOT_YET, *["-"] * cells, _seeds(runs, [])]
