"""Cost of Flower: bytes of the transport, time of a simulated round, memory of the server."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from benchmarks.bench.measure import versions
from benchmarks.bench.socket_bytes import JOB, measure_socket_bytes
from subbit.core.machine import machine

ROOT = Path(__file__).parents[2]
FEW, MANY = 10, 100
TIMED_ROUNDS = 6


def run_flower_benchmark(say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    results: dict[str, Any] = {"machine": machine(), "versions": versions()}
    say("memory of a server with 10 and with 100 clients a round")
    results["server_memory"] = measure_server_memory()
    say("time of a round in Flower's simulation and in the simulator")
    results["simulation"] = measure_simulation()
    say("bytes at the socket of a deployment")
    results["transport"] = measure_socket_bytes()
    return results


def measure_server_memory() -> dict[str, Any]:
    """Each measurement in a separate process, since the peak memory of a process never decreases."""
    few, many = (_child("-m", "benchmarks.bench.server_memory", str(count)) for count in (FEW, MANY))
    return {"few": few, "many": many, "ratio": many["peak_mb"] / few["peak_mb"]}


def measure_simulation() -> dict[str, Any]:
    """Median seconds per round of the same job, without the first round, which compiles and loads."""
    with TemporaryDirectory() as folder:
        seconds = {engine: _round_seconds(Path(folder), engine) for engine in ("simulator", "flower")}
    return {**seconds, "ratio": seconds["flower"] / seconds["simulator"]}


def _round_seconds(folder: Path, engine: str) -> float:
    job = [f"{key}={value}" for key, value in {**JOB, "clients": 10, "rounds": TIMED_ROUNDS}.items()]
    words = ["run", *job, f"engine={engine}", f"name={engine}", f"folder={folder}"]
    subprocess.run([sys.executable, "-m", "subbit", *words], check=True, stdout=subprocess.DEVNULL, env=_environment())
    events = map(json.loads, (folder / engine / "events.jsonl").read_text().splitlines())
    rounds = [event["seconds"] for event in events if event.get("phase") == "main"]
    return float(statistics.median(rounds[1:]))


def _child(*words: str) -> dict[str, Any]:
    command = [sys.executable, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=_environment())
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _environment() -> dict[str, str]:
    return {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def flower_table(results: dict[str, Any]) -> Table:
    memory, simulation, transport = (results[name] for name in ("server_memory", "simulation", "transport"))
    table = Table("measured", "value", title="subbit on Flower")
    table.add_row(f"server's peak memory, {FEW} clients a round", f"{memory['few']['peak_mb']:.0f} MB")
    table.add_row(f"server's peak memory, {MANY} clients a round", f"{memory['many']['peak_mb']:.0f} MB")
    table.add_row("round of Flower's simulation / of the simulator", f"{simulation['ratio']:.2f}")
    for way in ("up", "down"):
        frames, crossed = transport["ledger_bytes"][way], transport["socket_bytes"][way]
        table.add_row(f"bytes {way} in a round: frames / socket", f"{frames} / {crossed}")
    table.add_row("ledger bytes / socket bytes of a round", f"{transport['ledger_over_socket']:.3f}")
    return table
