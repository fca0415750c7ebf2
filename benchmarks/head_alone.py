"""The closed-form classifier (`head=lda`) on frozen features, without any training, on the jobs of our tables.

    python benchmarks/head_alone.py        writes benchmarks/results/head-alone.json (minutes; needs Fashion-MNIST)

A run needs at least one round. Here it is one of all clients with learning rate 0, which does not change the head, so
the accuracy before it is that of the head. One-off costs: what clients send to fit the head, and the head that is sent
back to each of them.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from subbit.config.resolve import read_toml
from subbit.report.compare import MEGABYTE, contender_settings, parse_contender
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OUTPUT = RESULTS / "head-alone.json"
HEAD = "fedavg:select=head,learning_rate=0"
ONE_ROUND = ["head=lda", "rounds=1", "evaluate_every=1", "participation=1", "workers=1", "epochs=1", "batch_size=32"]
# Tables by the name of their result, with the job and the options that they were made with.
JOBS: dict[str, tuple[str, list[str]]] = {
    "compressors-digits": ("compressors-digits", []),
    "fashion-masks": ("fashion-masks", []),
    "fashion-masks-skewed": ("fashion-masks-skewed", []),
    "flagship-ablations": ("fashion-masks", ["limit=450"]),
    "frontier-fashion": ("frontier-fashion", []),
    "fedpeft-fashion": ("fedpeft-fashion", []),
    "fedpeft-privacy": ("fedpeft-fashion", []),
    "gradmask-iid": ("gradmask-iid", []),
    "gradmask-2class": ("gradmask-2class", []),
    "gradmask-starved": ("gradmask-starved", []),
}


def seeds_of(table: str) -> int:
    """As many seeds as the table has, so that both are means over the same splits."""
    if table.startswith("gradmask"):
        splits = json.loads((RESULTS / "gradmask.json").read_text())["splits"]
        return max(int(split["seeds"]) for split in splits.values())
    return int(json.loads((RESULTS / f"{table}.json").read_text())["seeds"])


def head_alone(job: str, words: list[str], seeds: int) -> dict[str, Any]:
    values, contender = read_toml(ROOT / "experiments" / f"{job}.toml"), parse_contender(HEAD)
    runs = []
    for seed in range(seeds):
        settings = contender_settings(contender, [contender], values, [*words, *ONE_ROUND], seed)
        summary = run_job(build_problem(settings.run), settings).summary
        if summary["accuracy"] != summary["accuracy_before"]:
            raise AssertionError(f"{job}, seed {seed}: learning rate 0 changed the accuracy")
        once = summary["one_off_bytes"] + summary["downlink_bytes"]
        runs.append({"seed": seed, "accuracy": summary["accuracy_before"], "once_bytes": once})
        print(f"{job}, seed {seed}: {summary['accuracy_before']:.4f}, {once / MEGABYTE:.2f} MB", flush=True)
    accuracies = [run["accuracy"] for run in runs]
    return {
        "job": job,
        "words": words,
        "seeds": seeds,
        "accuracy": statistics.fmean(accuracies),
        "accuracy_spread": statistics.stdev(accuracies) if seeds > 1 else 0.0,
        "once_mb": statistics.fmean(run["once_bytes"] for run in runs) / MEGABYTE,
        "runs": runs,
    }


def main() -> None:
    found: dict[str, Any] = {}
    for table, (job, words) in JOBS.items():
        same = [known for known in found.values() if (known["job"], known["words"]) == (job, words)]
        found[table] = (
            same[0] if same and same[0]["seeds"] == seeds_of(table) else head_alone(job, words, seeds_of(table))
        )
    OUTPUT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
