"""The table of the arena, from committed results: scores with their spread, the gap closed, bytes and seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from subbit.arena.jobs import Job
from subbit.arena.kept_results import Found, Record
from subbit.arena.races import known
from subbit.report.baselines import CEILING, find_gap, kind
from subbit.report.compare import share_cell
from subbit.report.gap import Gap, Level, best, equal, level

SHARES = (0.5, 0.8)
"""Bytes are counted until these shares of the gap."""
MEGABYTE = 1e6


@dataclass(frozen=True, kw_only=True)
class Row:
    job: str
    method: str
    role: str
    """`floor`, `ceiling` or `method`."""
    run: str
    """The contender that was run, with the chosen setting."""
    tried: int
    """Settings that were compared on a validation split."""
    seeds: int
    failed: int
    score_name: str | None = None
    score: float | None = None
    spread: float | None = None
    """Standard deviation over seeds."""
    gap_closed: float | None = None
    gap_spread: float | None = None
    level_with_best: bool | None = None
    """Whether the seeds do not tell it apart from the best method of the job. Fewer than two seeds tell nothing."""
    level_with: tuple[str, ...] = ()
    """All methods of the job from which it is not told apart."""
    mb_to_50: float | None = None
    mb_to_80: float | None = None
    once_mb: float | None = None
    total_mb: float | None = None
    seconds: float | None = None
    """CPU time of a run, with the head and all evaluations: it depends less on what else the machine does."""


@dataclass(frozen=True)
class Standing:
    """One job."""

    job: Job
    gap: Gap | None
    rows: tuple[Row, ...]


def standing(folder: Path, job: Job) -> Standing:
    records = known(folder, job)
    scored = {label: record.scored for label, record in records.items() if record.scored}
    gap = find_gap(scored)
    levels = {label: Level.of([run["score"] for run in runs], runs[0]["score_name"]) for label, runs in scored.items()}
    rows = [_row(job, record, gap, levels, scored) for record in records.values()]
    order = {"floor": 0, "ceiling": 1, "method": 2}
    rows.sort(key=lambda row: (order[row.role], *_rank(row, levels, scored)))
    return Standing(job, gap, tuple(rows))


def _rank(row: Row, levels: Mapping[str, Level], scored: Mapping[str, Sequence[Found]]) -> tuple[float, str]:
    """The best first, then those without a result."""
    if row.method not in levels:
        return float("inf"), row.method
    mean = levels[row.method].mean
    return (-mean if scored[row.method][0]["higher_is_better"] else mean), row.method


def _row(
    job: Job,
    record: Record,
    gap: Gap | None,
    levels: Mapping[str, Level],
    scored: Mapping[str, Sequence[Found]],
) -> Row:
    label, entry = record.method, job.entries[record.method]
    role = {None: "method", CEILING: "ceiling"}.get(kind(label), "floor")
    words = record.chosen or ""
    run = f"{entry.run}{(',' if ':' in entry.run else ':') + words if words else ''}"
    about: dict[str, Any] = {"job": job.name, "method": label, "role": role, "run": run, "tried": len(record.tried)}
    about |= {"seeds": len(record.scored), "failed": len(record.runs) - len(record.scored)}
    if label not in scored:
        return Row(**about)
    runs = scored[label]
    scores = [run["score"] for run in runs]
    about |= {"score_name": runs[0]["score_name"], "score": statistics.fmean(scores), "seconds": _mean(runs, "cpu")}
    about["spread"] = statistics.stdev(scores) if len(scores) > 1 else None
    if role != "ceiling":
        about |= {"once_mb": _mean(runs, "one_off_bytes") / MEGABYTE, "total_mb": _mean(runs, "total_bytes") / MEGABYTE}
    if gap is not None and gap.width is not None:
        about |= {"gap_closed": gap.share(levels[label].mean), "gap_spread": levels[label].spread / abs(gap.width)}
        if role == "method":
            until = [gap.mean_bytes_until(share, runs) for share in SHARES]
            about |= {
                key: None if found is None else found / MEGABYTE
                for key, found in zip(("mb_to_50", "mb_to_80"), until, strict=True)
            }
    if role == "method":
        rivals = [other for other in scored if kind(other) is None]
        top = best([levels[other] for other in rivals], bool(runs[0]["higher_is_better"]))
        first = next(other for other in rivals if levels[other] is top)
        about["level_with_best"] = _same(label, first, levels, scored)
        about["level_with"] = tuple(o for o in rivals if o != label and _same(label, o, levels, scored))
    return Row(**about)


def _same(one: str, other: str, levels: Mapping[str, Level], scored: Mapping[str, Sequence[Found]]) -> bool:
    return min(len(scored[one]), len(scored[other])) < 2 or one == other or equal(levels[one], levels[other])


def _mean(runs: Sequence[Found], key: str) -> float:
    return statistics.fmean(float(run[key]) for run in runs)


def as_record(found: Standing) -> dict[str, Any]:
    """For `subbit arena --json`."""
    gap, about = found.gap, None
    if gap is not None:
        # Floor and ceiling of a perplexity are its logarithm, the loss.
        about = {**asdict(gap), "logarithm": level(math.e, gap.score_name) == 1, "measurable": gap.width is not None}
    return {
        "job": found.job.name,
        "what": found.job.header.what,
        "gap": about,
        "methods": [asdict(row) for row in found.rows],
    }


HEADINGS = (
    *("method", "score", "gap closed", "level with best"),
    *("MB to 50%", "MB to 80%", "MB once", "MB", "CPU s", "seeds"),
)


def cells(row: Row) -> list[str]:
    """A row under `HEADINGS`, for the console and for docs/arena.md."""
    if row.score is None:
        return [row.method, "failed" if row.failed else "not run", *["-"] * 7, str(row.seeds)]
    score = f"{row.score:.4g}" + (f" ± {row.spread:.2g}" if row.spread is not None else "")
    closed = share_cell(row.gap_closed)
    if row.gap_closed is not None and row.gap_spread:
        closed += f" ± {row.gap_spread:.0%}"
    until = ["never" if row.gap_closed is not None else "-"] * 2 if row.role == "method" else ["-", "-"]
    for place, value in enumerate((row.mb_to_50, row.mb_to_80)):
        until[place] = f"{value:.3g}" if value is not None else until[place]
    megabytes = ["-" if value is None else f"{value:.3g}" for value in (row.once_mb, row.total_mb)]
    mark = {None: "", True: "yes", False: "no"}[row.level_with_best]
    seeds = f"{row.seeds}" + (f", {row.failed} failed" if row.failed else "")
    return [row.method, score, closed, mark, *until, *megabytes, f"{row.seconds or 0:.0f}", seeds]
