"""Reads a page as a browser's parser would, as far as the tests need it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

from subbit.pages.document import static

VOID = {"meta", "br", "col", "path", "circle"}


class Parsed(HTMLParser):
    """Elements with their attributes and text. Anything not closed in order is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[int] = []
        self.elements: list[dict[str, Any]] = []
        self.feed(page)
        self.close()
        assert not self.open, f"{self.elements[self.open[-1]]['tag']} is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len({*names}), f"{tag} has an attribute twice"
        self.elements.append({"tag": tag, "text": "", "within": [*self.open], **dict(attrs)})
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.elements[self.open[-1]]["tag"] == tag, f"</{tag}> closes {self.elements[self.open[-1]]['tag']}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for place in self.open:
            self.elements[place]["text"] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, Any]]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            each
            for each in self.elements
            if each["tag"] == tag and all(each.get(name) == value for name, value in wanted.items())
        ]

    def inside(self, outer: dict[str, Any], tag: str) -> list[dict[str, Any]]:
        place = next(number for number, each in enumerate(self.elements) if each is outer)
        return [each for each in self.elements if each["tag"] == tag and place in each["within"]]

    @property
    def text(self) -> str:
        return str(self.all("main")[0]["text"])

    @property
    def plots(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.all("script", id="plots")[0]["text"])
        return found


def check_page(page: str) -> Parsed:
    """What every page keeps."""
    assert len(page.encode()) < 2_000_000
    assert page.startswith("<!DOCTYPE html>")
    script = static("plotly-basic.min.js")
    assert "</script" not in script
    found = Parsed(page.replace(script, ""))  # It is most of the page, and always the same.
    ids = [each["id"] for each in found.elements if "id" in each]
    assert len(ids) == len({*ids})
    assert [each["lang"] for each in found.all("html")] == ["en"]
    assert [len(found.all(tag)) for tag in ("main", "h1", "title")] == [1, 1, 1]
    for each in found.elements:
        for name, value in each.items():
            assert not name.startswith("on"), f"{each['tag']} has {name}"
            if name in ("src", "href", "srcset", "action", "data", "poster"):
                assert str(value).startswith("#"), f"{each['tag']} refers to {value}"
        assert each["tag"] not in ("img", "iframe", "link", "object", "embed", "form", "base"), each
    levels = [int(each["tag"][1]) for each in found.elements if each["tag"] in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for link in found.all("a"):
        assert link["href"].removeprefix("#") in ids
    areas = [each for each in found.elements if "plot-area" in str(each.get("class"))]
    assert {each["id"] for each in areas} == {*found.plots}
    for figure in found.all("figure"):
        (table,) = found.inside(figure, "table")
        assert found.inside(table, "td"), "a plot without numbers"
        assert found.inside(figure, "details")
    for table in found.all("table"):
        assert found.inside(table, "th")
        assert any("scroll" in str(found.elements[place].get("class")) for place in table["within"])
    return found
