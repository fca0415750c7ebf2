"""The report of a comparison: one row per contender, curves of all of them, and the spread over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from subbit.pages.document import Page
from subbit.pages.elements import Html, element, joined, paragraph
from subbit.pages.numbers_as_text import finite, number, share, whole
from subbit.pages.page_tables import pairs, table
from subbit.pages.plots import Line, Plot, Series
from subbit.report.baselines import CEILING, find_gap, kind
from subbit.report.frontier import mean_curve, scores_by_round
from subbit.report.gap import Gap

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def comparison_page(comparison: Mapping[str, Any], title: str) -> str:
    """`comparison` is the contents of comparison.json."""
    rows: Mapping[str, Mapping[str, Any]] = comparison["methods"]
    runs: Runs = comparison["runs"]
    first = next(iter(runs.values()))[0]
    name, higher = str(first.get("score_name", "accuracy")), bool(first.get("higher_is_better", True))
    gap = find_gap(runs)
    lines = (
        []
        if gap is None
        else [Line("floor", score_at(gap.floor.mean, name)), Line("ceiling", score_at(gap.ceiling.mean, name))]
    )
    page = Page(title, "report of a comparison")
    page.open(paragraph(headline(rows, name, higher, gap), class_="lead"), pairs(_figures(first, comparison)))
    page.section("Contenders", _table(comparison, name))
    page.section("Curves", _curves(page, runs, name, lines))
    page.section("Spread over seeds", _spread(page, runs, name, lines))
    page.section("Runs", _runs(runs, name))
    return page.as_html()


def score_at(level: float, score_name: str) -> float:
    """The score of a level: a gap is measured in the logarithm of a perplexity."""
    return math.exp(level) if score_name == "perplexity" else level


def headline(rows: Mapping[str, Mapping[str, Any]], name: str, higher: bool, gap: Gap | None) -> str:
    rivals = {label: row for label, row in rows.items() if kind(label) is None and finite(_score(row)) is not None}
    if not rivals:
        return "No method competed: floors and ceilings only."
    best = (max if higher else min)(rivals, key=lambda label: finite(_score(rivals[label])) or 0.0)
    row = rivals[best]
    score, start = number(_score(row)), number(_score(row, "_before"))
    closed = "" if gap is None else _closed(row.get("gap_closed"))
    told = f"{best} is the best of {len(rivals)}: {name} {score}{closed}, {start} at the start"
    if gap is not None:
        floor, ceiling = (number(score_at(each.mean, name)) for each in (gap.floor, gap.ceiling))
        told += f", floor {floor}, ceiling {ceiling}"
    return f"{told}; {number(row.get('total_mb'), 2)} MB were sent both ways."


def _closed(found: object) -> str:
    known = finite(found)
    if known is None:
        return ""
    return f" ({share(known)} of the gap closed)" if known >= 0 else " (below the floor)"


def _score(row: Mapping[str, Any], suffix: str = "") -> object:
    """Comparisons of earlier versions only have accuracies."""
    return row.get(f"score{suffix}", row.get(f"accuracy{suffix}"))


def _figures(first: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[tuple[object, object]]:
    return [
        ("model", first.get("model")),
        ("data set", first.get("dataset")),
        ("clients", whole(first.get("clients"))),
        ("seeds", whole(comparison.get("seeds"))),
        ("score", first.get("score_name", "accuracy")),
        ("better is", "higher" if first.get("higher_is_better", True) else "lower"),
    ]


def _table(comparison: Mapping[str, Any], name: str) -> Html:
    rows, target = comparison["methods"], comparison.get("target")
    has_gap = any("gap_closed" in row for row in rows.values())
    headings = ["contender", name, *(["gap closed"] if has_gap else []), "start", "MB"]
    headings += ["bpp up", "bpp down", "MB up", "MB down", "MB once"]
    headings += [f"MB to {number(target)}"] if target is not None else []
    cells, classes = [], []
    for label, row in rows.items():
        role = {None: None, CEILING: "ceiling"}.get(kind(label), "floor")
        tag = joined([label, " ", element("span", role, class_="tag")]) if role else label
        spread = f" ± {number(_score(row, '_spread'))}" if comparison["seeds"] > 1 else ""
        line: list[object] = [tag, number(_score(row)) + spread]
        line += [share(row.get("gap_closed"))] if has_gap else []
        line.append(number(_score(row, "_before")))
        sent = [number(row.get("total_mb"), 3), *(number(row.get(key)) for key in ("uplink_bpp", "downlink_bpp"))]
        sent += [number(row.get(key), 3) for key in ("uplink_mb", "downlink_mb", "one_off_mb")]
        # Training in one place sends nothing; the frames of its one client mean nothing.
        line += [number(None)] * len(sent) if role == "ceiling" else sent
        if target is not None:
            line.append("never" if row.get("mb_to_target") is None else number(row["mb_to_target"], 2))
        cells.append(line)
        classes.append(role)
    about = paragraph(
        "Means over seeds, ± the standard deviation over seeds; bpp bits per trained parameter, client and "
        "round, MB megabytes of the whole run and all clients.",
        class_="quiet",
    )
    return element(
        "div", about, element("div", table(headings, cells, "Table of contenders", classes=classes), class_="card")
    )


def _curves(page: Page, runs: Runs, name: str, lines: Sequence[Line]) -> Html | None:
    by_bytes, by_round = [], []
    for label, summaries in runs.items():
        if kind(label) is not None and lines:
            continue  # They are lines.
        curve = mean_curve(summaries)
        if curve and kind(label) != CEILING:
            by_bytes.append(Series(label, [point[0] for point in curve], [point[1] for point in curve]))
        numbers, scores = mean_by_round(summaries)
        if numbers:
            by_round.append(Series(label, numbers, scores))
    plots = []
    if by_bytes:
        plots.append(
            Plot(
                f"{name.capitalize()} against megabytes",
                "MB both ways",
                name,
                by_bytes,
                lines,
                "Means over seeds, all clients; the axis of megabytes is logarithmic.",
                log=True,
                tall=True,
            )
        )
    if by_round:
        plots.append(
            Plot(
                f"{name.capitalize()} by round",
                "round",
                name,
                by_round,
                lines,
                "Means over seeds.",
                whole=True,
                tall=True,
            )
        )
    return element("div", *map(page.plot, plots), class_="parts two") if plots else None


def mean_by_round(summaries: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float | None]]:
    """Rounds that all seeds evaluated, and the mean score after each."""
    numbers: list[float] = []
    means: list[float | None] = []
    for place, scores in enumerate(zip(*(scores_by_round(each) for each in summaries), strict=False)):
        known = [found for found in map(finite, scores) if found is not None]
        if known and len(known) == len(scores):
            numbers.append(place)
            means.append(statistics.fmean(known))
    return numbers, means


def _spread(page: Page, runs: Runs, name: str, lines: Sequence[Line]) -> Html | None:
    """Every seed of every contender as a point."""
    if max(len(found) for found in runs.values()) < 2:
        return None
    series = [
        Series(
            label,
            [place + 1] * len(found),
            [finite(_score(each)) for each in found],
            "points",
            [f"{label}, seed {each.get('seed')}" for each in found],
        )
        for place, (label, found) in enumerate(runs.items())
    ]
    about = "Every seed of every contender, in the order of the table."
    return page.plot(Plot(f"{name.capitalize()} of every seed", "contender", name, series, lines, about, whole=True))


def _runs(runs: Runs, name: str) -> Html:
    rows = [
        (str(each.get("name")), label, whole(each.get("seed")), number(_score(each)), whole(each.get("failed_clients")))
        for label, found in runs.items()
        for each in found
    ]
    told = paragraph(
        "Each run has a folder of its own beside this file; subbit report FOLDER makes its report.", class_="quiet"
    )
    headings = ["run", "contender", "seed", name, "failed client turns"]
    return element("div", told, table(headings, rows, "Table of runs", text=(0, 1), high=True))
