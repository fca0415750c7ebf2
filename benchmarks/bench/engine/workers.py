"""How much faster a round of vit-micro is with two worker processes: wall time."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from benchmarks.bench.engine.child import run_child
from benchmarks.bench.engine.jobs import (
    BLOCKS,
    CLASSES,
    VIT,
    Clock,
    problem_of,
    random_images,
    time_rounds,
    uncached,
)
from subbit.models.load_model import load_classifier

CLIENTS, EXAMPLES = 8, 64
WARM_ROUNDS = 8
"""Enough for one of them to be undisturbed: two busy processes leave a small machine no core for anything else."""


def measure_workers(workers: int) -> dict[str, Any]:
    train = random_images(CLIENTS * EXAMPLES, (3, 32, 32))
    problem = problem_of(load_classifier(VIT, CLASSES, key=0), train, CLIENTS, train.select(np.arange(8)))
    rounds = WARM_ROUNDS + 2
    values = {"method": "deltamask", "select": f"{BLOCKS}: weights", "head": "keep", "clients": CLIENTS}
    clock = Clock()
    time_rounds(
        problem, {**values, **uncached(), "rounds": rounds, "evaluate_every": rounds, "workers": workers}, clock
    )
    return {"wall": clock.warm()[1]}


def two_workers_speedup() -> dict[str, Any]:
    found: dict[int, list[float]] = {1: [], 2: []}
    for number in (1, 2, 1, 2):  # In turns, so that a busy spell meets both.
        found[number] += run_child(["-m", "benchmarks.bench.engine.workers", str(number)]).found["wall"]
    best = {number: min(rounds) for number, rounds in found.items()}
    return {
        "results": {"two_workers_speedup": best[1] / best[2]},
        "round_wall": {str(number): rounds for number, rounds in found.items()},
        "load_average": os.getloadavg(),
    }


if __name__ == "__main__":
    print(json.dumps(measure_workers(int(sys.argv[1]))))
