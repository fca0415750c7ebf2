"""CPU seconds until the command line answers, and of the demo, now and before the engine was made faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.bench.engine.before import COMMIT, in_turns, run_before
from benchmarks.bench.engine.child import Spent, best_cpu, run_child

RUNS = 5
COMMANDS = {
    "help_seconds": ["-m", "subbit", "--help"],
    "list_seconds": ["-m", "subbit", "list", "methods"],
    "codecs_import_seconds": ["-c", "import subbit.codecs"],
}
DEMO = "experiments/demo-masks.toml"
DEMO_BEFORE = "experiments/demo.toml"
"""The same job; it was called so then."""
DEMO_RUNS = 2


def start_up() -> dict[str, Any]:
    return {"results": {name: best_cpu(words, RUNS) for name, words in COMMANDS.items()}, "runs": RUNS}


def demo(run: Callable[..., Spent] = run_child, run_before: Callable[..., Spent] = run_before) -> dict[str, Any]:
    """With the demo's own number of workers, whose CPU seconds are counted."""
    products = run(["-m", "benchmarks.bench.engine.products"]).found
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        now = partial(_demo_run, run, DEMO, Path(folder, "now"))
        before = partial(_demo_run, run_before, DEMO_BEFORE, Path(folder, "before"))
        ours, theirs, reason = in_turns(now, before, DEMO_RUNS)
    results = {"demo_cpu_seconds": min(row["cpu"] for row in ours)}
    measured = {"results": results, **_in_short(ours), "products_gflops": products}
    if reason:
        return {**measured, "missing": {"demo_over_before": reason}}
    results["demo_before_cpu_seconds"] = min(row["cpu"] for row in theirs)
    results["demo_over_before"] = results["demo_cpu_seconds"] / results["demo_before_cpu_seconds"]
    return {**measured, "before": {"commit": COMMIT, **_in_short(theirs)}}


def _demo_run(run: Callable[..., Spent], experiment: str, folder: Path, number: int) -> dict[str, Any]:
    """Run 0 compiles what is not compiled yet, and is short."""
    words = ["-m", "subbit", "run", experiment, f"folder={folder}", f"name=demo-{number}"]
    spent = run(words if number else [*words, "rounds=1"], variables={})
    summary = json.loads((folder / f"demo-{number}" / "summary.json").read_text())
    return {"cpu": spent.cpu, "wall": spent.wall, **{key: summary[key] for key in ("accuracy", "model_sha256")}}


def _in_short(runs: list[dict[str, Any]]) -> dict[str, Any]:
    models = sorted({row["model_sha256"] for row in runs})
    spent = {key: [row[key] for row in runs] for key in ("cpu", "wall")}
    return {**spent, "accuracy": runs[-1]["accuracy"], "model_sha256": models}
