"""Write the table of docs/language-models.md from `benchmarks/results/language.json`, made by `benchmarks/language.py`.

A test fails if the page is out of date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "language.json", ROOT / "docs" / "language-models.md"
MARKERS = re.compile(r"(<!-- generated: language -->\n).*?(<!-- /generated -->)", re.DOTALL)
MEGABYTE = 1e6


def render(rows: dict[str, Any]) -> str:
    before = rows["LoRA, one bit"]["score_before"]
    lines = [
        "| what is trained | perplexity | change | trained | up, bits | down, bits | up, MB | down, MB | once, MB |",
        "|---" * 9 + "|",
        f"| nothing: the pre-trained model | {before:.1f} |  |  |  |  |  |  |  |",
    ]
    for name, row in rows.items():
        cells = [name, f"{row['score']:.1f}", f"{100 * (row['score'] / row['score_before'] - 1):+.1f}%"]
        if "parameters" in row:
            cells += [f"{row['parameters']:,}", f"{row['uplink_bpp']:.2f}", f"{row['downlink_bpp']:.2f}"]
            traffic = [row["uplink_bytes"], row["downlink_bytes"], row["one_off_bytes"]]
            cells += [f"{count / MEGABYTE:.2f}" for count in traffic]
        else:
            cells += [""] * 6
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rendered_page(text: str) -> str:
    table = render(json.loads(RESULTS.read_text())["rows"]) if RESULTS.exists() else "Not measured yet.\n"
    return MARKERS.sub(lambda match: match.group(1) + table + match.group(2), text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
    print(f"updated {PAGE}")
