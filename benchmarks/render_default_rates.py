"""Write the runs of `benchmarks/results/default-rates.json` into docs/methods.md."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "methods.md"
RESULTS = ROOT / "benchmarks" / "results" / "default-rates.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def default_rates(found: dict[str, Any]) -> str:
    runs = {(run["job"], run["method"]): run for run in found["runs"]}
    jobs, methods = (list(dict.fromkeys(pair[place] for pair in runs)) for place in (0, 1))
    rows = [[f"`{method}`", *(_cell(runs.get((job, method))) for job in jobs)] for method in methods]
    return str(SECTIONS["table"](["method", *jobs], rows))


def _cell(run: dict[str, Any] | None) -> str:
    if run is None:
        return "-"
    if "score" not in run:
        return "refused" if "refused" in run else "failed"
    digits = 3 if run["score"] < 2 else 1
    return f"{run['score_before']:.{digits}f} to {run['score']:.{digits}f}"


def rendered_page(text: str) -> str:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    return str(SECTIONS["filled"](text, found, {"default-rates": default_rates}))


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
