"""A protocol with our values beside the printed ones: every printed value, relation and reading with its verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from subbit.papers.claims import Computed, Derived, Printing, Reading, Relation
from subbit.papers.computed import compute
from subbit.papers.paper_values import Values, our_values, scale_of
from subbit.papers.printed import Printed, printed
from subbit.papers.protocols import Protocol
from subbit.papers.verdicts import (
    MEASURED,
    Ours,
    Verdict,
    by_bound,
    by_order,
    by_relation,
    by_value,
    counted,
    nearness,
    of_table,
    pair,
    tolerance_of,
)


@dataclass(frozen=True)
class Cell:
    kind: Literal["value", "mean", "difference", "relation", "reading", "computed", "impossible"]
    says: str
    metric: str
    printed: str
    ours: float | None
    spread: float
    seeds: int
    verdict: Verdict
    why: str = ""
    scale: str = ""
    """At which it was measured."""
    counts: bool = True
    """False for readings: they ask which one is right, and do not decide about the table."""
    theirs: float | None = None
    """The printed number, in the unit of ours, where there is one of ours."""


@dataclass(frozen=True)
class Judged:
    protocol: Protocol
    scale: str
    cells: tuple[Cell, ...]
    shrunk: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        return of_table(cell.verdict for cell in self.cells if cell.counts)

    @property
    def counts(self) -> str:
        return counted(cell.verdict for cell in self.cells if cell.counts)

    def as_record(self) -> dict[str, Any]:
        protocol = self.protocol
        about = {"paper": protocol.paper, "name": protocol.name, "what": protocol.header.what, "scale": self.scale}
        about |= {"verdict": "nothing to measure" if protocol.header.drawing else self.verdict, "counts": self.counts}
        return {**about, "shrunk": list(self.shrunk), "cells": [asdict(cell) for cell in self.cells]}


def judged(protocol: Protocol, scale: str, results: Path, root: Path) -> Judged:
    """From the results at this scale, and what was committed elsewhere under `root`."""
    values = our_values(protocol, scale, results, root)
    run = any(value.source == "runs" for value in values.values())
    shrunk = [*protocol.scales[scale].shrunk] if run else []
    used = {value.source for value in values.values()}
    for answer in protocol.claims.answers:
        if answer.file in used and scale_of(answer) == scale and answer.shrunk:
            shrunk += answer.shrunk.split("; ")
    cells = (
        *_printed_cells(protocol, values),
        *(cell for derived in protocol.claims.derived for cell in _differences(protocol, derived, values)),
        *(_relation(protocol, relation, values) for relation in protocol.claims.relations),
        *(cell for reading in protocol.claims.readings for cell in _reading(protocol, reading, values)),
        *(_computed(each) for each in protocol.claims.computed),
        *_impossible(protocol),
    )
    placed = tuple(replace(cell, scale=scale if cell.verdict in MEASURED else "") for cell in cells)
    return Judged(protocol, scale, placed, tuple(dict.fromkeys(shrunk)))


def _printed_cells(protocol: Protocol, values: Values) -> Iterator[Cell]:
    for printing in protocol.claims.printed:
        if printing.column is None:
            yield _mean(protocol, printing, values)
            continue
        ours = values.get((printing.row, printing.column, printing.metric))
        where = f"{printing.row}, {printing.column}" if printing.column else printing.row
        missing = protocol.missing(printing.row, printing.column)
        if ours is None:
            verdict: Verdict = "cannot be run here" if missing else "not run"
            yield Cell("value", where, printing.metric, printing.value.text, None, 0.0, 0, verdict, missing)
            continue
        verdict, why = _value_verdict(protocol, printing, ours, values)
        yield _cell("value", where, printing.metric, printing.value, ours, verdict, why)


def _value_verdict(protocol: Protocol, printing: Printing, ours: Ours, values: Values) -> tuple[Verdict, str]:
    tolerance = tolerance_of(printing.metric, printing.value.value, protocol.tolerance)
    if not ours.shrunk:
        beyond = ours.value - printing.value.value
        return by_value(
            printing.value, ours, tolerance
        ), f"ours is {abs(beyond):.3g} {'higher' if beyond > 0 else 'lower'}"
    others = [
        (other, values[key])
        for other in protocol.claims.printed
        if other.metric == printing.metric and other.column == printing.column and other.row != printing.row
        for key in [(other.row, str(other.column), other.metric)]
        if key in values
    ]
    pairs = {
        other.row: pair((printing.value, other.value), (ours, theirs), printing.metric, tolerance)
        for other, theirs in others
    }
    against = [row for row, found in pairs.items() if found == -1]
    return by_order(pairs.values()), f"other way round: {', '.join(against)}" if against else ""


def _mean(protocol: Protocol, printing: Printing, values: Values) -> Cell:
    """Of all columns, or nothing."""
    each = [values.get((printing.row, column, printing.metric)) for column in protocol.columns]
    known = [value for value in each if value is not None]
    says = f"{printing.row}, mean of the columns"
    if len(known) < len(each) or any(value.shrunk for value in known):
        missing = protocol.rows[printing.row].missing
        verdict: Verdict = "cannot be run here" if missing else "not run"
        return Cell("mean", says, printing.metric, printing.value.text, None, 0.0, 0, verdict, missing)
    ours = Ours(
        statistics.fmean(value.value for value in known),
        max(value.spread for value in known),
        min(value.seeds for value in known),
        False,
    )
    tolerance = tolerance_of(printing.metric, printing.value.value, protocol.tolerance)
    return _cell("mean", says, printing.metric, printing.value, ours, by_value(printing.value, ours, tolerance))


def _differences(protocol: Protocol, derived: Derived, values: Values) -> Iterator[Cell]:
    for column, text in zip(protocol.columns, derived.printed, strict=True):
        if not text:
            continue
        theirs, says = printed(text), f"{derived.says}, {column}" if column else derived.says
        left, right = (values.get((row, column, derived.metric)) for row in (derived.left, derived.right))
        missing = protocol.missing(derived.left, column) or protocol.missing(derived.right, column)
        if left is None or right is None or (derived.op == "over" and not right.value):
            verdict: Verdict = "cannot be run here" if missing else "not run"
            yield Cell("difference", says, derived.metric, text, None, 0.0, 0, verdict, missing)
            continue
        if derived.op == "minus":
            value, spread, level = left.value - right.value, max(left.spread, right.spread), 0.0
        else:
            value, spread, level = left.value / right.value, 0.0, 1.0
        shrunk = left.shrunk or right.shrunk
        ours = Ours(value, spread, min(left.seeds, right.seeds), shrunk)
        if shrunk:  # Only the sign can be the same: which of the two is more.
            verdict = by_relation([(left, right)], derived.metric, ">" if theirs.value > level else "<", 0.0)
        else:
            verdict = by_value(theirs, ours, tolerance_of(derived.metric, theirs.value, protocol.tolerance))
        yield _cell("difference", says, derived.metric, theirs, ours, verdict)


def _relation(protocol: Protocol, relation: Relation, values: Values) -> Cell:
    pairs = [
        (values[left], values[right])
        for left, right in _pairs(protocol, relation)
        if left in values and right in values
    ]
    verdict = by_relation(pairs, relation.metric, relation.sign, relation.within)
    rows = [reference.partition("@")[0] for reference in (relation.left, relation.right)]
    missing = next((protocol.rows[row].missing for row in rows if row and protocol.rows[row].missing), "")
    if verdict == "not run" and missing:
        verdict = "cannot be run here"
    where = f"{len(pairs)} compared" if pairs else missing
    if len(pairs) == 1:
        where = f"{pairs[0][0].value:.4g} against {pairs[0][1].value:.4g}"
    seeds = min((each.seeds for both in pairs for each in both), default=0)
    return Cell("relation", relation.says, relation.metric, "", None, 0.0, seeds, verdict, where)


def _pairs(protocol: Protocol, relation: Relation) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    (left, _, left_column), (right, _, right_column) = (each.partition("@") for each in (relation.left, relation.right))
    rows = [(left, right)] if left and right else [(left or right or row,) * 2 for row in protocol.rows]
    for left_row, right_row in rows:
        for column in protocol.columns:
            yield (
                (left_row, left_column or column, relation.metric),
                (right_row, right_column or column, relation.metric),
            )
            if left_column and right_column:
                break


def _reading(protocol: Protocol, reading: Reading, values: Values) -> Iterator[Cell]:
    """Each row against the number that it should explain. At a smaller scale: which one is nearest."""
    theirs = printed(reading.printed)
    keys = {row: (row, reading.column, reading.metric) for row in reading.rows}
    known = {row: values[key] for row, key in keys.items() if key in values}
    words = nearness(known, theirs, reading.metric) if known else {}
    for row in reading.rows:
        says = f"{reading.id}: {reading.says}: {row}"
        if row not in known:
            missing = protocol.missing(row, reading.column)
            verdict: Verdict = "cannot be run here" if missing else "not run"
            yield Cell("reading", says, reading.metric, reading.printed, None, 0.0, 0, verdict, missing, counts=False)
            continue
        ours = known[row]
        tolerance = tolerance_of(reading.metric, theirs.value, protocol.tolerance)
        verdict = "undecided" if ours.shrunk else by_value(theirs, ours, tolerance)
        yield replace(_cell("reading", says, reading.metric, theirs, ours, verdict, words[row]), counts=False)


def _computed(claim: Computed) -> Cell:
    theirs = printed(claim.printed)
    ours = Ours(claim.times * compute(claim.function, claim.options), shrunk=False, source=claim.function)
    verdict = by_value(theirs, ours, claim.tolerance) if claim.sign == "=" else by_bound(theirs, ours, claim.sign)
    cell = _cell("computed", claim.says, "computed", theirs, ours, verdict, claim.reading)
    bound = {"=": "", "<": "at most ", ">": "at least "}[claim.sign]
    return replace(cell, printed=bound + claim.printed, counts=not claim.alternative)


def _impossible(protocol: Protocol) -> Iterator[Cell]:
    for claim in protocol.claims.impossible:
        for text in claim.printed or ("",):
            yield Cell("impossible", claim.says, "", text, None, 0.0, 0, "cannot be run here", claim.why)


def _cell(
    kind: Literal["value", "mean", "difference", "reading", "computed"],
    says: str,
    metric: str,
    theirs: Printed,
    ours: Ours,
    verdict: Verdict,
    why: str = "",
) -> Cell:
    found = Cell(kind, says, metric, theirs.text, ours.value, ours.spread, ours.seeds, verdict, why)
    return replace(found, theirs=theirs.value)
