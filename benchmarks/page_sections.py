"""Generated sections of a page: between `<!-- generated: NAME -->` and `<!-- /generated -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SECTION = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
Results = Mapping[str, Any]


def filled(page: str, results: Results, sections: Mapping[str, Callable[[Results], str]]) -> str:
    """The page with every generated section updated."""

    def generated(section: re.Match[str]) -> str:
        return f"{section[1]}\n{sections[section['name']](results)}\n\n{section[3]}"

    return SECTION.sub(generated, page)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    headings = list(headings)
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
