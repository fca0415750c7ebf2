"""Tables: with headings for screen readers, and in a container of their own to scroll in."""

from __future__ import annotations

from collections.abc import Sequence

from subbit.pages.elements import Html, element, joined, safe

ROWS = 400
"""Rows of numbers at most, so that a page stays small."""


def table(
    headings: Sequence[object],
    rows: Sequence[Sequence[object]],
    label: str,
    *,
    text: Sequence[int] = (0,),
    classes: Sequence[str | None] = (),
    high: bool = False,
) -> Html:
    """The first column names the row. Columns in `text` are text, the others numbers; `classes` are of the rows; a
    `high` table scrolls in a window of its own."""

    def cell(place: int, value: object, name: str, scope: str | None = None) -> Html:
        return element(name, value, class_=None if place in text else "n", scope=scope)

    head = element("tr", *(cell(place, heading, "th", "col") for place, heading in enumerate(headings)))
    body = []
    for row, class_ in zip(rows, [*classes, *[None] * (len(rows) - len(classes))], strict=True):
        cells = [
            cell(place, value, "td" if place else "th", None if place else "row") for place, value in enumerate(row)
        ]
        body.append(element("tr", *cells, class_=class_))
    inner = element("table", element("thead", head), element("tbody", *body))
    return scrolled(inner, label, high=high)


def scrolled(inner: Html, label: str, *, high: bool = False) -> Html:
    """What may be wider than the page. It has a name and can be reached by the keyboard, to be scrolled by it."""
    return element(
        "div", inner, class_="scroll high" if high else "scroll", tabindex="0", role="region", aria_label=label
    )


def pairs(entries: Sequence[tuple[object, object]]) -> Html:
    """Key figures: names and values."""
    tiles = [element("div", element("dt", name), element("dd", value)) for name, value in entries]
    return element("dl", *tiles, class_="figures")


def thinned(count: int, most: int = ROWS) -> list[int]:
    """At most so many places out of `count`, evenly spaced, with the first and the last.

    >>> thinned(3), thinned(101, 3)
    ([0, 1, 2], [0, 50, 100])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def bins(count: int, most: int) -> list[range]:
    """Consecutive places in at most `most` groups of one size; the last one may be smaller.

    >>> bins(5, 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    width = max(1, -(-count // most))
    return [range(start, min(start + width, count)) for start in range(0, count, width)]


def span(places: range) -> str:
    """A group as a heading."""
    return str(places[0]) if len(places) == 1 else f"{places[0]}\N{EN DASH}{places[-1]}"


def coloured(
    corner: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[tuple[object, str]]]],
    label: str,
) -> Html:
    """A grid of cells as (text, class), e.g. a heat map: a table, so that it is read like one."""
    head = joined(element("th", text, scope="col") for text in (corner, *columns))
    body = [
        Html(
            f'<tr><th scope="row">{safe(name)}</th>'
            + "".join(f'<td class="{class_}">{safe(text)}</td>' for text, class_ in cells)
            + "</tr>"
        )
        for name, cells in rows
    ]
    inner = element("table", element("thead", element("tr", head)), element("tbody", *body), class_="cells")
    return scrolled(inner, label, high=len(rows) > 30)
