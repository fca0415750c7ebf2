"""The report of the arena: for each job the table of `subbit arena`, and scores against megabytes."""

from __future__ import annotations

from collections.abc import Sequence

from subbit.arena.standings import HEADINGS, Row, Standing, cells
from subbit.pages.comparison_page import score_at
from subbit.pages.document import Page
from subbit.pages.elements import Html, element, joined, paragraph
from subbit.pages.numbers_as_text import number
from subbit.pages.page_tables import table
from subbit.pages.plots import Line, Plot, Series


def arena_page(standings: Sequence[Standing]) -> str:
    page = Page("Arena", "report of the arena")
    methods = {
        row.method for found in standings for row in found.rows if row.role == "method" and row.score is not None
    }
    jobs = f"{len(standings)} job{'s' * (len(standings) != 1)}"
    told = f"{len(methods)} methods with results on {jobs}; each job has its own floor and ceiling."
    page.open(paragraph(told, class_="lead"))
    for found in standings:
        page.section(found.job.name, *_job(page, found))
    return page.as_html()


def job_headline(found: Standing) -> str:
    """A job in one sentence."""
    scored = [row for row in found.rows if row.role == "method" and row.score is not None]
    if not scored:
        return "No method has a result yet."
    best = scored[0]  # Rows are in order.
    told = f"{best.method} is the best of {len(scored)}: {best.score_name} {number(best.score)}"
    if found.gap is not None:
        floor, ceiling = (score_at(each.mean, found.gap.score_name) for each in (found.gap.floor, found.gap.ceiling))
        told += f", floor {number(floor)}, ceiling {number(ceiling)}"
    return f"{told}; {number(best.total_mb, 2)} MB were sent both ways."


def _job(page: Page, found: Standing) -> list[Html]:
    score = next((row.score_name for row in found.rows if row.score_name), "score")
    headings = [score if heading == "score" else heading for heading in HEADINGS]
    rows = [_cells(row) for row in found.rows]
    classes = [None if row.role == "method" else row.role for row in found.rows]
    parts = [
        paragraph(job_headline(found), class_="lead"),
        paragraph(found.job.header.what, class_="quiet"),
        element("div", table(headings, rows, f"{found.job.name}: results", classes=classes), class_="card"),
    ]
    series = [
        Series(row.method, [row.total_mb], [row.score], "points", [row.method])
        for row in found.rows
        if row.role == "method" and row.score is not None and row.total_mb
    ]
    if series:
        name, lines = str(score), []
        if found.gap is not None:
            lines = [
                Line("floor", score_at(found.gap.floor.mean, name)),
                Line("ceiling", score_at(found.gap.ceiling.mean, name)),
            ]
        about = "One point per method, means over seeds, all clients; the axis of megabytes is logarithmic."
        plot = Plot(
            f"{found.job.name}: {name} against megabytes",
            "MB both ways",
            name,
            series,
            lines,
            about,
            log=True,
            tall=True,
        )
        parts.append(element("div", page.plot(plot), class_="parts"))
    return parts


def _cells(row: Row) -> list[object]:
    name, *others = cells(row)
    tag = element("span", row.role, class_="tag")
    return [name if row.role == "method" else joined([name, " ", tag]), *others]
