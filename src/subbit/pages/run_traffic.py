"""What a run sent: bytes per round, direction and part."""

from __future__ import annotations

from subbit.pages.document import Page
from subbit.pages.elements import Html, element, paragraph
from subbit.pages.numbers_as_text import MEGABYTE, megabytes
from subbit.pages.page_tables import bins, table
from subbit.pages.plots import Plot, Series
from subbit.pages.read_run import RunData

BARS = 200
"""Rounds beyond this are put together."""
WAYS = {"up": "From the clients", "down": "To the clients"}


def bytes_by_part(page: Page, run: RunData) -> Html | None:
    if run.ledger is None or not run.ledger.by_round:
        return None
    sums = run.ledger.by_round
    groups = bins(max(sums) + 1, BARS)
    wide, plots = len(groups[0]), []
    for way, title in WAYS.items():
        series = []
        for part in run.ledger.parts(way):
            sizes = [0] * len(groups)
            for number, found in sums.items():
                sizes[number // wide] += found.get((way, part), 0)
            series.append(Series(part, [group[0] for group in groups], [size / MEGABYTE for size in sizes], "bars"))
        if series:
            about = "All clients together, by part of a message; without one-off costs."
            plots.append(
                Plot(
                    f"{title}, MB per {'round' if wide == 1 else f'{wide} rounds'}",
                    "round",
                    "MB",
                    series,
                    about=about,
                    whole=True,
                    from_zero=True,
                )
            )
    return element("div", *map(page.plot, plots), class_="parts two") if plots else None


def one_off_costs(run: RunData) -> Html | None:
    if run.ledger is None or not run.ledger.once:
        return None
    phases = {"head": "fitting the head", "main": "sent once in the rounds"}
    rows = [
        (phases.get(phase, phase), WAYS[way].lower(), part, megabytes(size))
        for (phase, way, part), size in sorted(run.ledger.once.items())
    ]
    told = paragraph("One-off costs, all clients together:", class_="quiet")
    return element("div", told, table(["when", "direction", "part", "MB"], rows, "One-off costs", text=(0, 1, 2)))
