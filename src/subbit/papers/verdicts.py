"""When a printed value holds. All rules are here, and only here; tests/papers/test_verdicts.py has a case for each.

by value     A run with nothing shrunk, or a computed number, against a printed one. `holds` if they differ by no more
             than the tolerance of the metric, or the rounding of the printed number if that is more, plus the larger of
             the two spreads. For a computed number the tolerance is the rounding alone, unless its protocol says more.
             A number that the paper only bounds holds if it is within the bound.
by order     At a smaller scale values cannot be equal; the order of the rows in a column can. Two rows are compared if
             the paper prints values for both that differ by more than their spreads and the tolerance. Ours `agree` if
             they differ the same way by more than our margin, are `reversed` if they differ the other way by more than
             it, else they are within the spread and say nothing. A value `holds in shape` if none of its pairs is
             reversed and one agrees; it `does not hold` if one is reversed.
relation     "A is below B", in every column where both were run: `does not hold` if it is reversed by more than the
             margin anywhere; `undecided` if it is within the margin everywhere; else it `holds`, at a smaller scale
             `in shape`.
reading      Which of several rows explains a printed number: `nearness` says so only beyond the margin.
margin       What two of our values may differ by chance: the larger of their standard deviations over seeds; with one
             seed, a fixed number, since then the spread is unknown.
table        The worst of its values: `does not hold` if one does not; else `holds` if all that were measured do, else
             `holds in shape`, `undecided`, `not run`, and `cannot be run here` if no value can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from subbit.papers.printed import Printed

Verdict = Literal["holds", "holds in shape", "does not hold", "undecided", "not run", "cannot be run here"]
VERDICTS: tuple[Verdict, ...] = (
    *("does not hold", "holds", "holds in shape", "undecided", "not run", "cannot be run here"),
)
MEASURED: tuple[Verdict, ...] = VERDICTS[:4]
POINTS = ("accuracy", "expected", "sampled", "discretised", "gap")
"""Metrics in percent of examples."""
POINTS_TOLERANCE, SHARE_TOLERANCE = 1.0, 0.05
"""Points of accuracy; for other metrics, the share of the printed value."""
POINTS_MARGIN, SHARE_MARGIN = 3.0, 0.02
"""With one seed."""


@dataclass(frozen=True)
class Ours:
    """A value of ours: mean and standard deviation over seeds."""

    value: float
    spread: float = 0.0
    seeds: int = 1
    shrunk: bool = True
    """The job was smaller than the paper's."""
    source: str = ""


def tolerance_of(metric: str, value: float, own: Mapping[str, float]) -> float:
    if metric in own:
        return own[metric]
    return POINTS_TOLERANCE if metric in POINTS else SHARE_TOLERANCE * abs(value)


def margin_of(metric: str, ours: Sequence[Ours]) -> float:
    if all(each.seeds > 1 for each in ours):
        return max(each.spread for each in ours)
    return POINTS_MARGIN if metric in POINTS else SHARE_MARGIN * max(abs(each.value) for each in ours)


def by_value(theirs: Printed, ours: Ours, tolerance: float) -> Verdict:
    allowed = max(tolerance, theirs.rounding) + max(theirs.spread, ours.spread)
    return "holds" if abs(ours.value - theirs.value) <= allowed * (1 + 1e-9) else "does not hold"


def by_bound(theirs: Printed, ours: Ours, wanted: Literal["<", ">"]) -> Verdict:
    """A number that the paper only bounds: at most, or at least, the printed one."""
    beyond = ours.value - theirs.value if wanted == "<" else theirs.value - ours.value
    return "holds" if beyond <= 1e-9 * abs(theirs.value) else "does not hold"


def sign(left: Ours, right: Ours, metric: str) -> int:
    """-1 if left is lower by more than the margin, 1 if it is higher, 0 if nothing can be said."""
    difference = left.value - right.value
    return 0 if abs(difference) <= margin_of(metric, (left, right)) else (1 if difference > 0 else -1)


def pair(theirs: tuple[Printed, Printed], ours: tuple[Ours, Ours], metric: str, tolerance: float) -> int | None:
    """1: the same order as printed, -1: reversed, 0: within our spread. None: the paper claims no order."""
    difference = theirs[0].value - theirs[1].value
    if abs(difference) <= max(tolerance, theirs[0].spread, theirs[1].spread):
        return None
    return sign(*ours, metric) * (1 if difference > 0 else -1)


def by_order(pairs: Iterable[int | None]) -> Verdict:
    found = [each for each in pairs if each is not None]
    if -1 in found:
        return "does not hold"
    return "holds in shape" if 1 in found else "undecided"


def by_relation(
    pairs: Iterable[tuple[Ours, Ours]], metric: str, wanted: Literal["<", ">", "~"], within: float
) -> Verdict:
    """`~`: they differ by no more than `within` plus the margin. For the others `within` is how much is forgiven."""
    pairs = list(pairs)
    if not pairs:
        return "not run"
    found: Verdict = "holds in shape" if any(each.shrunk for both in pairs for each in both) else "holds"
    if wanted == "~":
        near = [abs(left.value - right.value) <= within + margin_of(metric, (left, right)) for left, right in pairs]
        return found if all(near) else "does not hold"
    signs = [sign(left, right, metric) * (1 if wanted == ">" else -1) for left, right in pairs]
    if any(each < 0 for each in signs):
        return "does not hold"
    return found if any(signs) else "undecided"


def nearness(readings: Mapping[str, Ours], theirs: Printed, metric: str) -> dict[str, str]:
    """Which of several readings is nearest to a printed number, in words; within the margin none is."""
    far = {name: abs(ours.value - theirs.value) for name, ours in readings.items()}
    first, *others = sorted(far, key=lambda name: far[name])
    if not others:
        return {first: ""}
    margins = {name: margin_of(metric, (readings[first], readings[name])) for name in others}
    level = [name for name in others if far[name] - far[first] <= margins[name]]
    found = {name: f"further away than {first}" for name in others if name not in level}
    return {**found, **dict.fromkeys((first, *level), "no nearer than another" if level else "the nearest reading")}


def of_table(verdicts: Iterable[Verdict]) -> Verdict:
    found = {*verdicts}
    measured = found & {*MEASURED}
    if "does not hold" in found:
        return "does not hold"
    if measured == {"holds"}:
        return "holds"
    for verdict in ("holds in shape", "holds", "undecided", "not run"):
        if verdict in found:
            return "holds in shape" if verdict == "holds" else verdict
    return "cannot be run here"


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each, for people."""
    found = [*verdicts]
    return ", ".join(f"{found.count(each)} {each}" for each in VERDICTS if each in found)
