"""Gradient masks against FedAvg and against controls that the paper lacks, on three splits.

    SUBBIT_DATA=... python benchmarks/gradmask.py                      about a minute on two cores for each run
    python benchmarks/gradmask.py --seeds 3 --splits IID "two classes"
    python benchmarks/gradmask.py --output /tmp/try.json rounds=1 limit=200 test_limit=50       a trial

The rows are the same on every split. Their learning rate is that of the file in experiments/; "as small a step" is
FedAvg with that rate times the active fraction. docs/papers.md has the results beside table 1 of paper 001.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from subbit.config.resolve import Settings, read_toml
from subbit.core.files import replace_file
from subbit.report.compare import compare, parse_contender
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "papers" / "answers" / "gradmask.json"
ACTIVE = 0.3
SPLITS = {"IID": "gradmask-iid", "two classes": "gradmask-2class", "starved": "gradmask-starved"}


def rows(rate: float) -> dict[str, str]:
    """Contenders by their label."""
    masks = ["least-sensitive", "most-sensitive", "lowest-magnitude", "highest-magnitude"]
    return {
        "FedAvg, all weights": "fedavg",
        "mask: random": f"gradmask:active_fraction={ACTIVE}",
        **{f"mask: {mask}": f"gradmask:active_fraction={ACTIVE},mask={mask}" for mask in masks},
        "mask: random, the same for all clients": f"gradmask:active_fraction={ACTIVE},mask_scope=global",
        "control: all weights, as small a step": f"fedavg:learning_rate={ACTIVE * rate:g}",
        "control: all weights, warm-up and clipping": "fedavg:warmup_rounds=4,gradient_clip=1.0",
        "control: the head alone": "fedavg:select=head",
        "mask: random, clients of highest loss": f"gradmask:active_fraction={ACTIVE},selection=high-loss",
    }


def run(settings: Settings) -> dict[str, Any]:
    print(f"{settings.run.name} ...", flush=True)
    summary = run_job(build_problem(settings.run), settings).summary
    print(f"  accuracy {summary['accuracy']:.4f}, {summary['seconds']:.0f} s", flush=True)
    return summary


def measure(splits: list[str], seeds: int, words: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"splits": {}}
    for split in splits:
        values = read_toml(ROOT / "experiments" / f"{SPLITS[split]}.toml")
        results["rows"] = rows(values["fedavg"]["learning_rate"])
        contenders = [parse_contender(contender) for contender in results["rows"].values()]
        results["splits"][split] = compare(contenders, values, words, seeds, None, run)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="See the top of this file.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("words", nargs="*", help="key=value for all runs")
    arguments = parser.parse_intermixed_args()
    found = measure(arguments.splits, arguments.seeds, arguments.words)
    replace_file(arguments.output, (json.dumps(found, indent=2) + "\n").encode())
    print(f"written to {arguments.output}")
