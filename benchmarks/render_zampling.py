"""Write the tables of docs/zampling.md from committed results of `subbit zampling ...`.

subbit zampling table --part federated --output benchmarks/results/zampling-federated.json
subbit zampling table --part local --seeds 1 --output benchmarks/results/zampling-local.json
python benchmarks/render_zampling.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subbit.cli.zampling_commands import FEDERATED_HEADINGS, LOCAL_HEADINGS, federated_cells, local_cells

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "zampling.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKERS = re.compile(r"(?P<open><!-- zampling: (?P<part>[a-z]+) -->\n).*?(?P<close><!-- /zampling -->)", re.DOTALL)


def local(results: dict[str, Any]) -> list[str]:
    made = f"{results['seeds']} seed(s), {results['samples']} drawn networks each, percent."
    return [made, "", *markdown(LOCAL_HEADINGS, local_cells(results))]


def federated(results: dict[str, Any]) -> list[str]:
    return markdown(FEDERATED_HEADINGS, federated_cells(results))


def markdown(headings: list[str], rows: list[list[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


PARTS: dict[str, Callable[[dict[str, Any]], list[str]]] = {"federated": federated, "local": local}


def rendered_page(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        results = json.loads((RESULTS / f"zampling-{match['part']}.json").read_text())
        return match["open"] + "\n".join(PARTS[match["part"]](results)) + "\n" + match["close"]

    return MARKERS.sub(replaced, text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
