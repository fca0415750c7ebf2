"""Our values for the cells of a protocol: from its runs, and from other committed results that answer a cell."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from subbit.core.errors import RunFolderError
from subbit.papers.claims import Answer
from subbit.papers.metrics import METRICS
from subbit.papers.paper_runs import planned, read_runs
from subbit.papers.protocols import Protocol
from subbit.papers.verdicts import Ours

Values = dict[tuple[str, str, str], Ours]
"""By row, column and metric."""


def scale_of(answer: Answer) -> str:
    return "cpu" if answer.shrunk else "paper"


def our_values(protocol: Protocol, scale: str, results: Path, root: Path) -> Values:
    """Of runs and, in columns without any, of other committed results: values of two jobs are never compared."""
    found = _run_values(protocol, scale, results) if scale in protocol.scales else {}
    columns = {column for _, column, _ in found}
    answered = [answer for answer in protocol.claims.answers if scale_of(answer) == scale]
    answers = [answer for answer in answered if answer.column not in columns]
    return {**found, **{(answer.row, answer.column, answer.metric): _answer(answer, root) for answer in answers}}


def _run_values(protocol: Protocol, scale: str, results: Path) -> Values:
    found: Values = {}
    known = {run["fingerprint"]: run for run in read_runs(results, protocol, scale)}
    if not known:
        return found
    shrunk = bool(protocol.scales[scale].shrunk)
    by_cell: dict[tuple[str, str], list[dict[str, Any]]] = {}
    # Up to ten seeds: more than the protocol asks for may have been run.
    for run in planned(protocol, scale, max(10, protocol.header.seeds)):
        if run.fingerprint in known:
            by_cell.setdefault((run.row, run.column), []).append(known[run.fingerprint])
    for (row, column), runs in by_cell.items():
        for metric, measure in METRICS.items():
            each = [value for value in map(measure, runs) if value is not None]
            if each:
                spread = statistics.stdev(each) if len(each) > 1 else 0.0
                found[row, column, metric] = Ours(statistics.fmean(each), spread, len(each), shrunk, "runs")
    return found


def _answer(answer: Answer, root: Path) -> Ours:
    path = root / answer.file
    value, spread = (_found_at(path, places) if places else 0.0 for places in (answer.at, answer.spread_at))
    times = answer.times
    return Ours(times * value, times * spread, answer.seeds, bool(answer.shrunk), answer.file)


def _found_at(path: Path, places: Iterable[str]) -> float:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        for place in places:
            found = found[int(place)] if isinstance(found, list) else found[place]
        return float(statistics.fmean(found) if isinstance(found, list) else found)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise RunFolderError(f"{path}: has nothing at {'/'.join(places)} ({error!r}); see [[answers]]") from None
