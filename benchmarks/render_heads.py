"""Write the tables of docs/heads.md from benchmarks/results/heads.json: `python benchmarks/render_heads.py`."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "heads.md", ROOT / "benchmarks" / "results" / "heads.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
NETWORKS = {
    "vision": "vit-micro, Fashion-MNIST",
    "imagenet": "EfficientNet-Lite0, CIFAR-10",
    "text": "MiniLM, BBC news",
}
HEADS = {"plain": "shrinkage 0.1", "auto": "`head=lda`", "probe": "converged probe", "hindsight": "best in hindsight"}


def quality(rows: list[dict[str, Any]]) -> str:
    """Accuracy and loss of new examples, by network and number of examples."""
    found = {(row["job"], row["examples"], row["head"]): row for row in rows if "head" in row}
    lines = []
    for job, examples in dict.fromkeys(key[:2] for key in found):
        own = [found[job, examples, head] for head in HEADS]
        cells = [f"{row['score']:.3f}, {row['loss']:.2f}" for row in own]
        lines.append([NETWORKS[job], str(own[0]["width"]), f"{examples:,}", *cells])
    return str(SECTIONS["table"](["network, data", "features", "examples", *HEADS.values()], lines))


def sizes(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if "codec" in row:
            each = f"{row['one_off_bytes'] / row['clients'] / 1000:,.1f}"
            cells = [f"`{row['codec']}`", f"{row['score']:.4f}", f"{row['loss']:.3f}", each]
            lines.append([NETWORKS[row["job"]], str(row["width"]), f"{row['examples']:,}", *cells])
    names = ["network, data", "features", "examples", "head_codec", "accuracy", "loss", "kB per client"]
    return str(SECTIONS["table"](names, lines))


def rendered_page(text: str) -> str:
    rows = json.loads(RESULTS.read_text())
    return str(SECTIONS["filled"](text, rows, {"quality": quality, "sizes": sizes}))


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
