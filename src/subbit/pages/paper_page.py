"""The report of `subbit paper`: for each table or figure the printed values beside ours, with a verdict in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote

from subbit.pages.document import Page
from subbit.pages.elements import Html, element, paragraph, preformatted
from subbit.pages.page_tables import table
from subbit.pages.plots import Plot, Series
from subbit.papers.best_known import ours_text
from subbit.papers.paper_tables import Cell, Judged
from subbit.papers.verdicts import MEASURED, VERDICTS, Verdict

CLASSES: dict[Verdict, str] = {"holds": "yes", "holds in shape": "yes", "does not hold": "no"}
PHRASES: dict[Verdict, tuple[str, str]] = {
    "does not hold": ("does not hold", "do not hold"),
    "holds": ("holds", "hold"),
    "holds in shape": ("holds in shape", "hold in shape"),
    "undecided": ("is undecided", "are undecided"),
    "not run": ("was not run", "were not run"),
    "cannot be run here": ("cannot be run here", "cannot be run here"),
}
HEADINGS = ("what", "metric", "printed", "ours", "seeds", "verdict", "why")
PLAIN = ("", "computed")
"""Metrics that say nothing."""


def paper_page(found: Sequence[Judged]) -> str:
    cells = [cell for each in found for cell in each.cells if cell.counts]
    page = Page("The papers, value by value" if len(found) != 1 else _label(found[0]), "report of the papers")
    tables = f"{len(found)} table{'s' * (len(found) != 1)} and figures" if len(found) != 1 else _label(found[0])
    page.open(
        paragraph(f"{tables}: {in_words(cells)}", class_="lead"),
        paragraph(
            "A value holds if ours is the printed one, within the tolerance of its metric and the spread over seeds. "
            "Where a job was smaller than the paper's, only the order of rows can hold: in shape. Readings ask which "
            "meaning of the text explains a number, and are not counted. All rules: docs/papers.md.",
            class_="quiet",
        ),
    )
    for each in found:
        page.section(_label(each), *_table(page, each))
    return page.as_html()


def in_words(cells: Iterable[Cell]) -> str:
    """The counts of verdicts as a sentence."""
    verdicts = [cell.verdict for cell in cells]
    if not verdicts:
        return "there is nothing to measure."
    counts = {each: verdicts.count(each) for each in VERDICTS if each in verdicts}
    told = [f"{count} {PHRASES[each][count > 1]}" for each, count in counts.items()]
    return f"of {len(verdicts)} value{'s' * (len(verdicts) != 1)}, {', '.join(told)}."


def _label(found: Judged) -> str:
    return f"{found.protocol.paper} {found.protocol.name}"


def _table(page: Page, found: Judged) -> list[Html]:
    protocol = found.protocol
    parts = [paragraph(protocol.header.what, class_="quiet")]
    if protocol.header.drawing:
        return [*parts, paragraph("A drawing: there is nothing to measure.")]
    counted = [cell for cell in found.cells if cell.counts]
    parts.insert(0, paragraph(f"{found.verdict.capitalize()}: {in_words(counted)}", class_="lead"))
    if found.shrunk:
        parts += [
            paragraph("Smaller than in the paper:"),
            element("ul", *(element("li", each) for each in found.shrunk)),
        ]
    if protocol.header.note:
        parts.append(element("p", element("strong", "Note: "), protocol.header.note, class_="notice"))
    rows = [_row(cell) for cell in found.cells]
    parts.append(element("div", table(HEADINGS, rows, f"{_label(found)}: values", text=(0, 1, 5, 6)), class_="card"))
    plots = [page.plot(plot) for plot in _plots(found)]
    if plots:
        parts.append(element("div", *plots, class_="parts"))
    parts += [paragraph("To repeat it:"), preformatted("\n".join(_commands(found)), f"{_label(found)}: commands")]
    return parts


def _row(cell: Cell) -> list[object]:
    verdict = element("span", cell.verdict, class_=CLASSES.get(cell.verdict))
    metric = "" if cell.metric in PLAIN else cell.metric
    return [cell.says, metric, cell.printed, ours_text(cell), cell.seeds or "", verdict, cell.why]


def _plots(found: Judged) -> list[Plot]:
    """Printed and ours on one axis, for each metric apart: a point for every value that was measured."""
    plots = []
    for metric in dict.fromkeys(cell.metric for cell in found.cells):
        cells = [cell for cell in found.cells if cell.metric == metric and cell.kind in ("value", "mean")]
        cells = [cell for cell in cells if cell.ours is not None and cell.theirs is not None]
        if not cells:
            continue
        places, names = range(1, len(cells) + 1), [cell.says for cell in cells]
        series = [
            Series("printed", places, [cell.theirs for cell in cells], "points", names),
            Series("ours", places, [cell.ours for cell in cells], "points", names),
        ]
        about = "Values in the order of the table; those without one of ours are left out."
        title = f"{_label(found)}: {metric}, printed and ours"
        plots.append(Plot(title, "value", metric, series, about=about, whole=True))
    return plots


def _commands(found: Judged) -> list[str]:
    base = f"subbit paper {quote(found.protocol.paper)} {quote(found.protocol.name)}"
    ran = any(cell.verdict in MEASURED and cell.kind != "computed" for cell in found.cells)
    scales = [each for each in ("cpu", "smoke") if each in found.scale.split(" and ")] if ran else []
    return [
        f"{base}   # what is known: this table",
        *(f"{base} --scale {scale}   # run what is missing at this scale" for scale in scales),
        f"{base} --scale paper --dry-run   # what the paper's own protocol would take",
    ]
