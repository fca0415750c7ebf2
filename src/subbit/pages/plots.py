"""Plots: what is drawn, as data, and the same numbers as a table beneath. `static/pages.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from subbit.pages.elements import Html, element
from subbit.pages.numbers_as_text import finite, number
from subbit.pages.page_tables import table, thinned

POINTS = 500
"""Of one series."""
COLOURS, DASHES = 8, ("", "6 4", "2 3")


@dataclass(frozen=True)
class Series:
    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    mode: Literal["lines", "points", "bars"] = "lines"
    text: Sequence[str] | None = None
    """What a point is, where x does not say it."""

    def small(self) -> Series:
        kept = thinned(len(self.x), POINTS)
        text = None if self.text is None else [self.text[place] for place in kept]
        y = [finite(self.y[place]) for place in kept]
        return Series(self.name, [self.x[place] for place in kept], y, self.mode, text)


@dataclass(frozen=True)
class Line:
    """A level, such as the start or the ceiling."""

    name: str
    y: float


@dataclass(frozen=True)
class Plot:
    title: str
    x: str
    y: str
    series: Sequence[Series]
    lines: Sequence[Line] = ()
    about: str = ""
    """What to see in it, for all readers."""
    log: bool = False
    """Of the x axis."""
    whole: bool = False
    """Whether x counts something."""
    from_zero: bool = False
    tall: bool = False

    def small(self) -> Plot:
        return Plot(
            self.title, self.x, self.y, [each.small() for each in self.series],
            [line for line in self.lines if finite(line.y) is not None],
            self.about, self.log, self.whole, self.from_zero, self.tall,
        )  # fmt: skip

    def as_data(self) -> dict[str, Any]:
        return {
            "x": self.x,
            "y": self.y,
            "log": self.log,
            "whole": self.whole,
            "from_zero": self.from_zero,
            "series": [
                {"name": each.name, "x": list(each.x), "y": list(each.y), "mode": each.mode}
                | ({} if each.text is None else {"text": list(each.text)})
                for each in self.series
            ],
            "lines": [{"name": line.name, "y": line.y} for line in self.lines],
        }


def figure(plot: Plot, id_: str) -> Html:
    """The place of a plot, its legend and its numbers."""
    caption = [element("h3", plot.title)] + ([element("p", plot.about)] if plot.about else [])
    area = element(
        "div", class_="plot-area tall" if plot.tall else "plot-area", id=id_, role="img",
        aria_label=f"{plot.title}. {plot.about} The numbers are in the table below.",
    )  # fmt: skip
    legend = _legend(plot.series) if len(plot.series) > 1 else None
    numbers = element("details", element("summary", f"Numbers: {plot.title}"), numbers_of(plot))
    return element("figure", element("figcaption", *caption), area, legend or Html(), numbers, class_="plot")


def numbers_of(plot: Plot) -> Html:
    """One column per series where all have the same places, else one line per point."""
    first = plot.series[0] if plot.series else Series("", [], [])
    together = all(list(each.x) == list(first.x) and each.text == first.text for each in plot.series)
    rows: list[list[object]] = []
    if together:
        headings = [plot.x, *([] if first.text is None else ["name"]), *(each.name for each in plot.series)]
        for place in thinned(len(first.x)):
            named = [] if first.text is None else [first.text[place]]
            rows.append([_place(first.x[place], plot.whole), *named, *(number(each.y[place]) for each in plot.series)])
        text = [0] if first.text is None else [0, 1]
        total = len(first.x)
    else:
        headings, text = ["series", plot.x, plot.y], [0]
        points = [(each, place) for each in plot.series for place in range(len(each.x))]
        total = len(points)
        for each, place in (points[index] for index in thinned(total)):
            name = each.name if each.text is None else f"{each.name}: {each.text[place]}"
            rows.append([name, _place(each.x[place], plot.whole), number(each.y[place])])
    levels = [[line.name, *[""] * (len(headings) - 2), number(line.y)] for line in plot.lines]
    label = f"{plot.title}, numbers" + (f" ({len(rows)} of {total} points)" if len(rows) < total else "")
    return table(headings, [*rows, *levels], label, text=text, high=True)


def _place(value: float, whole: bool) -> str:
    return f"{value:g}" if whole else number(value)


def _legend(series: Sequence[Series]) -> Html:
    """Buttons that hide a line. Colour, dashes and symbol are those of pages.js."""
    entries = []
    for place, each in enumerate(series):
        colour, dash = f"var(--c{place % COLOURS})", DASHES[place // COLOURS % len(DASHES)]
        line = element("path", d="M1 6H27", stroke=colour, stroke_width="3", stroke_dasharray=dash or None)
        mark, width = (
            (line, 28) if each.mode == "lines" else (element("circle", cx="6", cy="6", r="5", fill=colour), 12)
        )
        swatch = element("svg", mark, width=width, height="12", viewBox=f"0 0 {width} 12", aria_hidden="true")
        entries.append(element("li", element("button", swatch, each.name, type="button", aria_pressed="true")))
    return element("ul", *entries, class_="legend", aria_label="Lines of the plot; press one to hide it")
