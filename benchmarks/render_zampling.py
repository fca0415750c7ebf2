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

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "zampling.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKERS = re.compile(r"(?P<open><!-- zampling: (?P<part>[a-z]+) -->\n).*?(?P<close><!-- /zampling -->)", re.DOTALL)


def federated(results: dict[str, Any]) -> list[str]:
    lines = [
        "| m/n | paper | expected | drawn | up, paper | n bits, our frames | up, ours | down, paper | down, ours |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        cells = [
            f"{row['compression']:g}",
            f"{row['paper']:.2f}",
            f"{row['expected']:.4f}",
            f"{row['sampled']:.4f} ± {row['sampled_deviation']:.4f}",
            times(row["paper_client_savings"]),
            times(row["client_savings_packed"]),
            times(row["client_savings"]),
            times(row["paper_server_savings"]),
            times(row["server_savings"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def local(results: dict[str, Any]) -> list[str]:
    lines = [
        f"{results['seeds']} seed(s), {results['samples']} drawn networks each, percent.",
        "",
        "| m/n | paper, drawn | ours, drawn | expected | best draw | at most two deviations below |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        cells = [
            f"{row['compression']:g}",
            f"{row['paper']:.2f} ± {row['paper_deviation']:.2f}",
            f"{row['sampled']:.2f}" + (f" ± {row['sampled_deviation']:.2f}" if results["seeds"] > 1 else ""),
            f"{row['expected']:.2f}",
            f"{row['best']:.2f}",
            "yes" if row["within_two_deviations"] else "**no**",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}x"


PARTS: dict[str, Callable[[dict[str, Any]], list[str]]] = {"federated": federated, "local": local}


def rendered_page(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        results = json.loads((RESULTS / f"zampling-{match['part']}.json").read_text())
        return match["open"] + "\n".join(PARTS[match["part"]](results)) + "\n" + match["close"]

    return MARKERS.sub(replaced, text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
