"""Write the runs of `benchmarks/results/default-rates.json` into docs/methods.md."""

from __future__ import annotations

import json
import runpy
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "methods.md"
RESULTS = ROOT / "benchmarks" / "results" / "default-rates.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def default_rates(found: dict[str, Any]) -> str:
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in found["runs"]:
        runs.setdefault((run["job"], run["method"]), []).append(run)
    jobs, methods = (list(dict.fromkeys(pair[place] for pair in runs)) for place in (0, 1))
    rows = [[f"`{method}`", *(_cell(runs.get((job, method), [])) for job in jobs)] for method in methods]
    return str(SECTIONS["table"](["method", *jobs], rows))


def _cell(runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, and in brackets the change on the seed on which it went worst."""
    scored = [run for run in runs if "score" in run]
    if len(scored) < len(runs) or not runs:
        return "failed" if any("failed" in run for run in runs) else "refused" if runs else "-"
    higher = scored[0]["higher_is_better"]
    changes = [run["score"] - run["score_before"] for run in scored]
    before, after = (statistics.fmean(run[key] for run in scored) for key in ("score_before", "score"))
    digits = 3 if higher else 1
    worst = f"{min(changes):+.3f}" if higher else f"{max(changes):+.1f}"
    return f"{before:.{digits}f} to {after:.{digits}f} ({worst})"


def rendered_page(text: str) -> str:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    return str(SECTIONS["filled"](text, found, {"default-rates": default_rates}))


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
