"""Write the numbers of `benchmarks/results/score-gradients.json` into docs/sparse-masks.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sparse-masks.md"
RESULTS = ROOT / "benchmarks" / "results" / "score-gradients.json"
MARKERS = re.compile(r"(<!-- gradients -->\n).*?(<!-- /gradients -->)", re.DOTALL)


def render(found: dict[str, Any]) -> str:
    energy = found["energy_of_largest"]
    rows = [
        *((f"share of the energy in the largest {float(part):.1%} of the places", energy[part]) for part in energy),
        ("cosine between the mean gradients of two halves of the clients", found["cosine_of_halves"]),
        ("the same for the signs of these means", found["cosine_of_halves_of_signs"]),
        (
            "agreement of their signs in the largest 1% of the places of one half",
            found["sign_agreement_of_largest_hundredth"],
        ),
    ]
    lines = [f"| {found['clients']} clients, one batch each, {found['places']:,} places | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value:.2f} |" for name, value in rows)]) + "\n"


def rendered_page(text: str) -> str:
    table = render(json.loads(RESULTS.read_text()))
    return MARKERS.sub(lambda match: match.group(1) + table + match.group(2), text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
