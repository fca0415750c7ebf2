"""The split as a heat map, scores of single clients, and what became of the layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from subbit.pages.document import Page
from subbit.pages.elements import Html, element, paragraph, preformatted
from subbit.pages.numbers_as_text import finite
from subbit.pages.page_tables import bins, coloured, span
from subbit.pages.plots import Line, Plot, Series
from subbit.pages.read_run import RunData

CLIENTS, CLASSES = 100, 50
"""Rows and columns of the heat map at most."""
LETTERS = 16
"""Of the name of a class at most."""
LEVELS = 5
"""Colours beside that of nothing."""


def held_classes(run: RunData) -> Html | None:
    """Clients by classes; where there are no classes, the summary of the split."""
    text = preformatted(run.split_text.rstrip(), "Summary of the split") if run.split_text.strip() else None
    grid = None if run.split is None else _heat_map(run.split)
    if grid is None and text is None:
        return None
    return element("div", *([] if grid is None else [grid]), *([] if text is None else [text]))


def _heat_map(split: Mapping[str, Any]) -> Html | None:
    held, classes = split.get("held"), split.get("classes")
    if not isinstance(held, list) or not isinstance(classes, int) or not held or classes < 1:
        return None
    groups = bins(classes, CLASSES)
    wide = len(groups[0])
    shown: list[list[int]] = []
    for own in held[:CLIENTS]:
        counts = [0] * len(groups)
        for each, count in own.items() if isinstance(own, dict) else ():
            if str(each).isdecimal() and int(each) < classes and isinstance(count, int):
                counts[int(each) // wide] += count
        shown.append(counts)
    most = max(1, *(max(counts) for counts in shown))
    rows = [
        (str(client), [(count or "", f"h{_level(count, most)}") for count in counts])
        for client, counts in enumerate(shown)
    ]
    headings = _class_headings(split.get("class_names"), classes, groups)
    grid = coloured("client", headings, rows, "Training examples by client and class")
    told = "Training examples by client (rows) and class (columns); empty: none. The stronger the colour, the more."
    if len(shown) < len(held):
        told += f" The first {len(shown)} of {len(held)} clients are shown."
    return element("div", paragraph(told, class_="quiet"), element("div", grid, class_="card"))


def _class_headings(names: object, classes: int, groups: Sequence[range]) -> list[str]:
    """Names where there is one for each class and each has a column of its own; else numbers."""
    if not isinstance(names, list) or len(names) != classes or len(groups) != classes:
        return [span(group) for group in groups]
    texts = [str(name) for name in names]
    return [text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…" for text in texts]


def _level(count: int, most: int) -> int:
    """By the square root, so that small counts differ from none."""
    return 0 if count <= 0 else max(1, math.ceil(LEVELS * math.sqrt(count / most)))


def personal_scores(page: Page, run: RunData) -> Html | None:
    scores = (run.summary or {}).get("score_by_client")
    if not isinstance(scores, dict) or not scores:
        return None
    known = sorted((int(client), finite(score)) for client, score in scores.items() if str(client).isdecimal())
    name = run.score_name
    mean = finite((run.summary or {}).get("score"))
    plot = Plot(
        f"{name.capitalize()} on each client's own test set", "client", name,
        [Series(name, [client for client, _ in known], [score for _, score in known], "points")],
        [] if mean is None else [Line("mean, the score of the run", mean)], whole=True,
    )  # fmt: skip
    return page.plot(plot)


def layers(page: Page, run: RunData) -> Html | None:
    found = (run.layers or {}).get("layers")
    if not isinstance(found, list) or not all(isinstance(layer, dict) for layer in found) or not found:
        return None
    numbers, names = list(range(len(found))), [str(layer.get("name")) for layer in found]

    def series(name: str, key: str) -> Series:
        return Series(name, numbers, [finite(layer.get(key)) for layer in found], "points", names)

    if (run.layers or {}).get("kind") == "mask":
        about = "The share of weights that the mask keeps, and the share that changed sides since the start."
        plot = Plot(
            "Mask by tensor", "tensor, in the order of the module", "share of weights",
            [series("kept", "density"), series("flipped", "flips")], about=about, whole=True, from_zero=True,
        )  # fmt: skip
    else:
        about = "The length of the change since the start, divided by the length at the start."
        plot = Plot(
            "Change by tensor", "tensor, in the order of the module", "relative change",
            [series("relative change", "change")], about=about, whole=True, from_zero=True,
        )  # fmt: skip
    return page.plot(plot)
