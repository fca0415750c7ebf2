"""How time and memory of a round grow with the clients, the parameters and the workers.

    python -m benchmarks.bench.scaling clients 1000 10      1,000 clients, 10 of them a round
    python -m benchmarks.bench.scaling parameters 1000000

measures one point. Each is a process of its own, since the peak memory of a process never decreases.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from rich.table import Table
from torch import nn

from benchmarks.bench.engine.child import run_child
from benchmarks.bench.engine.jobs import Clock, problem_of, time_rounds
from benchmarks.bench.engine.vitb import peak_gb
from benchmarks.bench.measure import versions
from subbit.core.machine import machine
from subbit.data import Examples

CLIENTS = (10, 100, 1_000, 10_000)
PARAMETERS = (100_000, 1_000_000, 10_000_000, 100_000_000)
WORKERS = (1, 2)
FEW = 10
"""Clients of a round where only few of all take part."""
INPUTS, CLASSES, EXAMPLES = 64, 10, 8
WARM_ROUNDS = 2
TRAINERS = 2
"""Clients of a round where the parameters grow."""


def run_scaling_benchmark(
    say: Callable[[str], None] = lambda line: None,
    clients: Sequence[int] = CLIENTS,
    parameters: Sequence[int] = PARAMETERS,
    workers: Sequence[int] = WORKERS,
) -> dict[str, Any]:
    found: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    found |= {"machine": machine(), "versions": versions(), "all": [], "few": [], "parameters": [], "workers": []}
    for count in clients:
        say(f"{count:,} clients ...")
        found["all"].append(_child("clients", count, count))
        found["few"].append(_child("clients", count, min(FEW, count)))
    for size in parameters:
        say(f"{size:,} parameters ...")
        found["parameters"].append(_child("parameters", size))
    for number in workers:
        say(f"{number} workers ...")
        wall = run_child(["-m", "benchmarks.bench.engine.workers", str(number)]).found["wall"]
        found["workers"].append({"workers": number, "round_wall": min(wall)})
    found["machine"]["load_average_after"] = round(os.getloadavg()[0], 2)
    return found


def _child(what: str, *numbers: int) -> dict[str, Any]:
    return run_child(["-m", "benchmarks.bench.scaling", what, *map(str, numbers)]).found


def measure_clients(clients: int, participants: int) -> dict[str, Any]:
    """FedAvg on a model of 650 weights, so that what is left is the engine's own work for a turn."""
    module = nn.Linear(INPUTS, CLASSES)
    spent = _round(module, clients, "fedavg", participation=participants / clients, batch_size=EXAMPLES)
    return {
        "clients": clients,
        "participants": participants,
        **spent,
        "ms_per_turn": 1000 * spent["cpu"] / participants,
    }


def measure_parameters(size: int) -> dict[str, Any]:
    """DeltaMask on a square layer: two clients, one step each, and the server's work, all in one process."""
    width = math.isqrt(size)
    spent = _round(nn.Linear(width, width, bias=False), TRAINERS, "deltamask", width, select="all: weights")
    each = 1e9 * spent["cpu"] / (width * width * TRAINERS)
    return {"parameters": width * width, "participants": TRAINERS, **spent, "ns_per_parameter_turn": each}


def _round(module: nn.Module, clients: int, method: str, width: int = INPUTS, **keys: Any) -> dict[str, float]:
    """CPU seconds of the fastest warm round, and memory: before the run and at its peak."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES * clients, width, generator=generator)
    labels = torch.randint(0, CLASSES, (len(inputs),), generator=generator)
    problem = problem_of(module, Examples(inputs, labels), clients, Examples(inputs[:FEW], labels[:FEW]))
    rounds, before, clock = WARM_ROUNDS + 2, peak_gb(), Clock()
    values = {"method": method, "clients": clients, "head": "keep", "rounds": rounds, "evaluate_every": rounds}
    time_rounds(problem, {**values, **keys}, clock)
    return {"cpu": min(clock.warm()[0]), "before_mb": 1024 * before, "peak_mb": 1024 * peak_gb()}


def scaling_table(found: dict[str, Any]) -> Table:
    table = Table("measured", "CPU of a round", "per turn or parameter", "peak memory", title="Scaling")
    for name in ("all", "few"):
        for row in found[name]:
            what = f"{row['participants']:,} of {row['clients']:,} clients"
            table.add_row(what, f"{row['cpu']:.3f} s", f"{row['ms_per_turn']:.2f} ms", f"{row['peak_mb']:.0f} MB")
    for row in found["parameters"]:
        each = f"{row['ns_per_parameter_turn']:.1f} ns"
        table.add_row(f"{row['parameters']:,} parameters", f"{row['cpu']:.3f} s", each, f"{row['peak_mb']:.0f} MB")
    for row in found["workers"]:
        table.add_row(f"{row['workers']} workers", f"{row['round_wall']:.2f} s wall", "", "")
    return table


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"clients": measure_clients, "parameters": measure_parameters}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(MEASURES[sys.argv[1]](*map(int, sys.argv[2:]))))
