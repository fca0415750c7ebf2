"""The table of SECURITY.md is what the committed results say, and these cover every method."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from subbit.methods.names import method_names

ROOT = Path(__file__).parents[2]


def test_the_table_is_what_the_committed_results_say() -> None:
    rendering = runpy.run_path(str(ROOT / "benchmarks" / "render_robustness.py"))
    text = (ROOT / "SECURITY.md").read_text()
    assert rendering["rendered_page"](text) == text, "run benchmarks/render_robustness.py"
    assert "| `fedavg` |" in text


def test_every_method_was_measured_or_says_why_not() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "robustness.json").read_text())
    assert sorted({*results["methods"], *results["skipped"]}) == method_names()


def test_honest_clients_are_never_refused() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "robustness.json").read_text())
    for name, found in results["methods"].items():
        for variant in ("default", "robust"):
            assert variant not in found or found[variant]["lies"]["honest"]["refused"] == 0, name
