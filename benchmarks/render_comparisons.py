"""Write tables into the pages of docs/ from committed results of `subbit compare ... --json`.

    subbit compare fedmask standalone --config experiments/NAME.toml --seeds 3 --json > benchmarks/results/NAME.json
    python benchmarks/render_comparisons.py

Everything between `<!-- comparison: NAME -->` and `<!-- /comparison -->` of a page is replaced. A test fails if a page
is out of date. Methods that fine-tune a pre-trained network are compared in the arena instead, with floors and a
ceiling.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from subbit.report.compare import score_cell

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MARKERS = re.compile(
    r"(?P<open><!-- comparison: (?P<name>[a-z0-9-]+) -->\n).*?(?P<close><!-- /comparison -->)", re.DOTALL
)


def render(comparison: dict[str, Any]) -> str:
    first = next(iter(comparison["runs"].values()))[0]
    personal = "accuracy_by_client" in first
    lines = [
        f"`{first['model']}` on `{first['dataset']}`, {first['clients']} clients, {first['participants']} in a round, "
        f"{first['rounds']} rounds, {comparison['seeds']} seed(s)"
        + (", mean and standard deviation" if comparison["seeds"] > 1 else "")
        + (" of the mean over devices of the accuracy on their own test sets" if personal else "")
        + ". Bits are per trained parameter, client and round; MB are over all clients and rounds.",
        "",
        "| method | accuracy | before | up, bits | down, bits | up, MB | down, MB | once, MB |",
        "|---" * 8 + "|",
    ]
    for label, row in comparison["methods"].items():
        cells = [
            f"`{label}`",
            score_cell(row, comparison["seeds"], digits=3),
            f"{row['accuracy_before']:.3f}",
            f"{row['uplink_bpp']:.4f}",
            f"{row['downlink_bpp']:.3f}",
            f"{row['uplink_mb']:.2f}",
            f"{row['downlink_mb']:.2f}",
            f"{row['one_off_mb']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rendered_page(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        comparison = json.loads((RESULTS / f"{match['name']}.json").read_text())
        return match["open"] + render(comparison) + match["close"]

    return MARKERS.sub(replaced, text)


def pages() -> list[Path]:
    return [page for page in sorted((ROOT / "docs").glob("*.md")) if MARKERS.search(page.read_text())]


if __name__ == "__main__":
    for page in pages():
        page.write_text(rendered_page(page.read_text()))
