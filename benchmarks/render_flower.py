"""Write the table of docs/flower.md from `benchmarks/results/flower.json`.

    subbit bench flower --output benchmarks/results/flower.json
    python benchmarks/render_flower.py

`tests/test_readme.py` fails if the page is out of date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "flower.json", ROOT / "docs" / "flower.md"
MARKERS = re.compile(r"(<!-- generated: flower -->\n).*?(<!-- /generated -->)", re.DOTALL)


def render(results: dict[str, Any]) -> str:
    transport, simulation, memory = (results[name] for name in ("transport", "simulation", "server_memory"))
    rows = [
        (
            f"bytes {way} in a DeltaMask round of 2 clients: frames / socket, with TLS and polling",
            f"{transport['ledger_bytes'][way]:,} / {transport['socket_bytes'][way]:,}",
        )
        for way in ("up", "down")
    ]
    rows += [
        ("ledger bytes / socket bytes of that round", f"{transport['ledger_over_socket']:.2f}"),
        (
            "a round of 10 clients of that job: Flower's simulation / simulator",
            f"{simulation['flower']:.2f} s / {simulation['simulator']:.2f} s",
        ),
        (
            "server's peak memory, 1,000 nodes, a million masked weights: 10 / 100 clients a round",
            f"{memory['few']['peak_mb']:.0f} MB / {memory['many']['peak_mb']:.0f} MB",
        ),
    ]
    return "| measured | |\n|---|---|\n" + "".join(f"| {what} | {value} |\n" for what, value in rows)


def rendered_page(text: str) -> str:
    table = render(json.loads(RESULTS.read_text()))
    return MARKERS.sub(lambda match: match.group(1) + table + match.group(2), text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
