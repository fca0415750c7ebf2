"""A page: one file that needs no other, and that loads nothing.

Scripts and styles are inside. The content security policy names the scripts by their hashes and allows nothing else to
run or to be loaded, so that a page is harmless even if something in its data were mistaken for markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from subbit import __version__
from subbit.pages.elements import Html, element, joined
from subbit.pages.plots import Plot, figure

GENERATOR = "subbit report"
"""By this a file is known to be one of ours."""
ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


@lru_cache
def static(name: str) -> str:
    """A file of `pages/static`."""
    return (files("subbit.pages") / "static" / name).read_text(encoding="utf-8")


def as_script_data(data: Any) -> Html:
    """JSON inside a script element: no character in it can end the element.

    >>> as_script_data("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    return Html(json.dumps(data, allow_nan=False, separators=(",", ":")).translate(ESCAPES))


class Page:
    """Collects sections and plots, then writes the document."""

    def __init__(self, title: str, kind: str) -> None:
        """`kind` says in the corner what is reported, e.g. "a run"."""
        self.title, self.kind = title, kind
        self._opening: list[Html] = []
        self._sections: list[tuple[str, Html]] = []
        self._plots: dict[str, dict[str, Any]] = {}

    def open(self, *parts: Html) -> None:
        """What comes before the sections."""
        self._opening += parts

    def section(self, heading: str, *parts: Html | None) -> None:
        """A section, unless it has nothing in it."""
        found = [part for part in parts if part]
        if found:
            self._sections.append((heading, joined(found)))

    def plot(self, plot: Plot) -> Html:
        id_, small = f"plot-{len(self._plots) + 1}", plot.small()
        self._plots[id_] = small.as_data()
        return figure(small, id_)

    def as_html(self) -> str:
        numbered = [(f"part-{place}", *section) for place, section in enumerate(self._sections, start=1)]
        links = (element("li", element("a", heading, href=f"#{id_}")) for id_, heading, _ in numbered)
        sections = (
            element("section", element("h2", heading, id=id_), content, aria_labelledby=id_)
            for id_, heading, content in numbered
        )
        nav = element("nav", element("ul", *links), aria_label="Sections") if len(numbered) > 2 else Html()
        main = element("main", element("h1", self.title), *self._opening, nav, *sections, id="content", tabindex="-1")
        bar = element(
            "header",
            element("p", f"subbit {__version__} · {self.kind}"),
            element("button", "Dark colours", type="button", id="scheme", hidden=True),
            class_="bar",
        )
        data = Html(f'<script type="application/json" id="plots">{as_script_data(self._plots)}</script>\n')
        scripts = [static("plotly-basic.min.js"), static("pages.js")] if self._plots else [static("pages.js")]
        body = [element("a", "Skip to the content", href="#content", class_="skip"), bar, main, _footer(), data]
        body += [Html(f"<script>{script}</script>\n") for script in scripts]
        head = [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            element("meta", name="generator", content=f"{GENERATOR} {__version__}"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"{self.title} · subbit"),
            Html(f"<style>\n{static('palette.css')}{static('pages.css')}</style>"),
        ]
        whole = element("html", element("head", joined(head, "\n")), element("body", joined(body, "\n")), lang="en")
        return f"<!DOCTYPE html>\n{whole}\n"


def is_ours(start: bytes) -> bool:
    """Whether a file that begins like this was made by `Page`."""
    return start.startswith(b"<!DOCTYPE html>") and f'content="{GENERATOR} '.encode() in start


def _footer() -> Html:
    return element(
        "footer",
        element("p", "This file is complete: it loads nothing and can be moved, mailed and archived. "
                     "Plots are drawn by plotly.js (MIT licence)."),
    )  # fmt: skip


def _policy(scripts: list[str]) -> str:
    sums = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in sums)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
