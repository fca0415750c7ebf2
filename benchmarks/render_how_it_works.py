"""Write the pictures and numbers of docs/how-it-works.md and docs/start.md from `benchmarks/results/one-round.json`.

    python benchmarks/render_how_it_works.py

`benchmarks/one_round.py` makes that file. `tests/docs/test_generated.py` fails when a page or a picture shows anything
else.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results" / "one-round.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
DRAW = runpy.run_path(str(Path(__file__).with_name("draw_round.py")))
PAGES = ("how-it-works.md", "start.md")


def steps(found: dict[str, Any]) -> str:
    """What the picture shows, for those who cannot see it."""
    number, ups, size, down = found["round"], found["up"], found["parameters"], found["down"]["bytes"]
    before, after = found["score_by_round"][number - 1 : number + 1]
    sent, bits = sum(client["bytes"] for client in ups), DRAW["bits"]
    flips = sum(client["flips"] for client in ups) / len(ups)
    mean = bits(sent / len(ups), size)
    return "\n".join(
        [
            f"1. **Down.** The server encodes {size:,} probabilities once, as counts: {down:,} bytes, "
            f"{bits(down, size)}. All {len(ups)} clients get this frame.",
            "2. **Local training.** Each client draws the reference mask from a shared key and trains its scores. Its "
            "own mask then differs from the reference at some positions.",
            f"3. **Up.** Each client sends the most important of these positions, {flips:,.0f} on average: {sent:,} "
            f"bytes in all, {mean}.",
            "4. **Aggregation.** The server restores every mask and counts the ones. The counts are the probabilities "
            f"of the next round. Accuracy goes from {before:.3f} to {after:.3f}.",
        ]
    )


def outcome(found: dict[str, Any]) -> str:
    plain = 2 * found["float32_bytes"] * found["clients"] * found["rounds"]
    return (
        f"The network has {found['parameters']:,} weights. Its accuracy goes from {found['score_before']:.2f} to "
        f"{found['score']:.2f}, and the whole run sends {found['total_bytes'] / 1e6:.2f} MB, both ways and all "
        f"clients. Weights in float32 would be {plain / 1e6:.1f} MB."
    )


def rendered() -> dict[Path, str]:
    found = json.loads(RESULTS.read_text())
    files = {
        DOCS / page: SECTIONS["filled"]((DOCS / page).read_text(), found, {"steps": steps, "outcome": outcome})
        for page in PAGES
    }
    return files | {DOCS / "round.svg": DRAW["draw_round"](found), DOCS / "frame.svg": DRAW["draw_frame"](found)}


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text)
