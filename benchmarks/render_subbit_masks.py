"""Write the single runs of `benchmarks/results/mask-rounding.json` into docs/subbit-masks.md."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "subbit-masks.md"
RESULTS = ROOT / "benchmarks" / "results" / "mask-rounding.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
COLUMNS = ("start", "trained", "unknown", "followed")
JOBS = ("vision", "language")


def runs(found: dict[str, Any]) -> str:
    headings = ["job", "seed", "start", "as trained", "its mask", "its mask, which clients train"]
    rows = [[each["job"], f"{each['seed']}", *(_score(each[name]) for name in COLUMNS)] for each in found["runs"]]
    return f"{found['what']}\n\n{SECTIONS['table'](headings, rows)}"


def metrics(found: dict[str, Any]) -> str:
    headings = ["H", *(f"{job}{what}" for job in JOBS for what in ("", ", left out"))]
    rows = [
        [each["metric"], *(text for job in JOBS for text in (_score(each["scores"][job]), f"{each['zeros'][job]:.1%}"))]
        for each in found["metrics"]
    ]
    return str(SECTIONS["table"](headings, rows))


def constants(found: dict[str, Any]) -> str:
    jobs = ("vision", "imagenet", "language")
    rows = [
        [f"{each['constant']:g}", *(_score(each["scores"][job]) if job in each["scores"] else "-" for job in jobs)]
        for each in found["constants"]
    ]
    return str(SECTIONS["table"](["W0 times", *jobs], rows))


def _score(score: float) -> str:
    return f"{score:.3f}" if score < 1 else f"{score:.1f}"


def rendered_page(text: str) -> str:
    return str(
        SECTIONS["filled"](
            text, json.loads(RESULTS.read_text()), {"runs": runs, "metrics": metrics, "constants": constants}
        )
    )


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
