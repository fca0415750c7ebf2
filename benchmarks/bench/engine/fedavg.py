"""FedAvg against the loop that one would write in PyTorch, and against pfl and Flower: the same job, data and steps."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch

from benchmarks.bench.engine.child import ONE_THREAD, Spent, run_child
from benchmarks.bench.engine.jobs import MLP_JOB, VIT_JOB, Clock, Job, time_rounds, uncached
from benchmarks.bench.engine.peers.networks import make_network, read_clients
from benchmarks.bench.engine.peers.plain import plain_round
from benchmarks.bench.engine.pfl_environment import pfl_python
from subbit.config.resolve import resolve
from subbit.core.randomness import torch_randomness
from subbit.runtime.problem import build_problem

JOBS = {"mlp": MLP_JOB, "vit": VIT_JOB}
WARM_ROUNDS = {"mlp": 60, "vit": 8}
"""Of each side. On a busy machine ratios varied from 1.03 to 1.11 with 8 short rounds, from 1.05 to 1.09 with 24."""
TOTAL_ROUNDS = 20
START_UPS = 3


@torch_randomness(0)
def measure_rounds(job: Job, rounds: int) -> dict[str, Any]:
    """CPU seconds of a round of subbit and of the plain loop, in turns in one process."""
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        data = job.write_data(Path(folder) / "data.npz")
        values = {**job.values(data, rounds + 2), **uncached()}
        problem = build_problem(resolve(values).run)
        plain = read_clients(data, job.clients)
    model, spent = make_network(job.network), []

    def one_plain_round() -> None:
        started = process_time()
        plain_round(model, plain, job.participants, job.batch_size)
        spent.append(process_time() - started)

    clock = Clock(one_plain_round)
    result = time_rounds(problem, values, clock)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if result.summary["parameters"] != trained:
        raise RuntimeError(f"subbit trains {result.summary['parameters']} parameters, the plain loop {trained}")
    engine, rivals = clock.warm()[0], spent[1:]
    return {
        "parameters": trained,
        "engine_cpu": min(engine),
        "plain_cpu": min(rivals),
        "ratio": min(engine) / min(rivals),
        "engine_rounds": engine,
        "plain_rounds": rivals,
    }


def engine_over_plain() -> dict[str, Any]:
    rounds = run_child(["-m", "benchmarks.bench.engine.fedavg", "mlp"]).found
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        data = MLP_JOB.write_data(Path(folder) / "data.npz")
        subbit_run = partial(_subbit_run, MLP_JOB, data, Path(folder))
        plain = ["-m", "benchmarks.bench.engine.peers.plain", *MLP_JOB.peer_words(data, TOTAL_ROUNDS)]
        # In turns, so that a busy machine is busy for both. The first run of each warms up.
        ours, theirs = zip(*((subbit_run(number), run_child(plain)) for number in range(START_UPS + 1)), strict=True)
    engine, rival = (min(run.cpu for run in runs[1:]) for runs in (ours, theirs))
    return {
        "results": {"engine_over_plain": rounds["ratio"], "engine_over_plain_with_startup": engine / rival},
        "rounds": rounds,
        "with_startup": {"rounds": TOTAL_ROUNDS, "engine_cpu": engine, "plain_cpu": rival},
    }


def _subbit_run(job: Job, data: Path, folder: Path, number: int, **others: Any) -> Spent:
    values = {**job.values(data, TOTAL_ROUNDS), **others, "folder": folder, "name": f"run-{number}"}
    return run_child(["-m", "subbit", "run", *(f"{key}={value}" for key, value in values.items())])


def flower_over_engine() -> dict[str, Any]:
    """Wall seconds of whole processes, the best of three each, in turns. Flower has all cores; subbit one worker, or
    two in the details."""
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        data = MLP_JOB.write_data(Path(folder) / "data.npz")
        words = ["-m", "benchmarks.bench.engine.peers.flower_job", *MLP_JOB.peer_words(data, TOTAL_ROUNDS)]
        flowers, ours = [], []
        for number in range(START_UPS):
            flowers.append(run_child(words, variables={}))
            ours.append(_subbit_run(MLP_JOB, data, Path(folder), number))
        flower, runs = min(flowers, key=_wall), {1: min(ours, key=_wall)}
        runs[2] = _subbit_run(MLP_JOB, data, Path(folder), START_UPS, workers=2)
    return {
        "results": {"flower_over_engine": flower.wall / runs[1].wall},
        "rounds": TOTAL_ROUNDS,
        "flower_wall": flower.wall,
        "flower_warm_round_wall": min(flower.found["wall"][1:]),
        "engine_wall": {f"{workers} workers": run.wall for workers, run in runs.items()},
        "flower_over_two_workers": flower.wall / runs[2].wall,
    }


def _wall(spent: Spent) -> float:
    return spent.wall


def pfl_over_engine() -> dict[str, Any]:
    """CPU seconds of a warm round. Above 1: subbit is faster."""
    python, results, details = pfl_python(), {}, {}
    for name, job in JOBS.items():
        with TemporaryDirectory(prefix="subbit-bench-") as folder:
            data = job.write_data(Path(folder) / "data.npz")
            words = ["-m", "benchmarks.bench.engine.peers.pfl_job", *job.peer_words(data, WARM_ROUNDS[name])]
            engine = run_child(["-m", "benchmarks.bench.engine.fedavg", name]).found
            rival = run_child(words, python=python, variables=ONE_THREAD).found
        best = min(rival["cpu"][1:])
        details[name] = {"engine_cpu": engine["engine_cpu"], "pfl_cpu": best, "plain_cpu": engine["plain_cpu"]}
        details[name] |= {"pfl": rival["pfl"], "pfl_torch": rival["torch"], "parameters": rival["parameters"]}
        results["pfl_over_engine" if name == "mlp" else f"pfl_over_engine_{name}"] = best / engine["engine_cpu"]
    return {"results": results, **details}


if __name__ == "__main__":
    print(json.dumps(measure_rounds(JOBS[sys.argv[1]], WARM_ROUNDS[sys.argv[1]])))
