"""CPU seconds until the command line answers, and of the demo."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.bench.engine.child import best_cpu, run_child

RUNS = 5
COMMANDS = {
    "help_seconds": ["-m", "subbit", "--help"],
    "list_seconds": ["-m", "subbit", "list", "methods"],
    "codecs_import_seconds": ["-c", "import subbit.codecs"],
}
DEMO = "experiments/demo-masks.toml"
DEMO_RUNS = 2


def start_up() -> dict[str, Any]:
    return {"results": {name: best_cpu(words, RUNS) for name, words in COMMANDS.items()}, "runs": RUNS}


def demo() -> dict[str, Any]:
    """With the demo's own number of workers, whose CPU seconds are counted."""
    runs, models = [], set()
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        for number in range(DEMO_RUNS):
            words = ["-m", "subbit", "run", DEMO, f"folder={folder}", f"name=demo-{number}"]
            runs.append(run_child(words, variables={}))
            summary = json.loads((Path(folder) / f"demo-{number}" / "summary.json").read_text())
            models.add(summary["model_sha256"])
    return {
        "results": {"demo_cpu_seconds": min(run.cpu for run in runs)},
        "wall": [run.wall for run in runs],
        "accuracy": summary["accuracy"],
        "model_sha256": sorted(models),
    }
