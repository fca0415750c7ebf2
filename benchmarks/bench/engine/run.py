"""All measurements of the engine, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from benchmarks.bench.engine.cache import cache
from benchmarks.bench.engine.fedavg import engine_over_plain, flower_over_engine, pfl_over_engine
from benchmarks.bench.engine.server import server
from benchmarks.bench.engine.startup import demo, start_up
from benchmarks.bench.engine.steps import steps_over_finetune
from benchmarks.bench.engine.targets import judge_engine
from benchmarks.bench.engine.vitb import vitb
from benchmarks.bench.engine.workers import two_workers_speedup
from benchmarks.bench.measure import versions
from subbit.core.errors import ConfigError
from subbit.core.machine import machine
from subbit.core.registry import nearest

Measurement = Callable[[], dict[str, Any]]
"""Returns its numbers under `results`, those that it lacks under `missing` with the reason, and details."""

MEASUREMENTS: dict[str, Measurement] = {
    "plain": engine_over_plain,
    "steps": steps_over_finetune,
    "cache": cache,
    "workers": two_workers_speedup,
    "start-up": start_up,
    "server": server,
    "pfl": pfl_over_engine,
    "flower": flower_over_engine,
    "vitb": vitb,
    "demo": demo,
}


def run_engine_benchmark(
    only: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
    measurements: dict[str, Measurement] = MEASUREMENTS,
) -> dict[str, Any]:
    """Measure all, or `only` some. What cannot be measured here is named under `missing`, with the reason."""
    for name in only:
        if name not in measurements:
            raise ConfigError(f"--only {name}: {nearest(name, list(measurements))}")
    results: dict[str, float] = {}
    details, missing = {}, {}
    found = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "versions": versions()}
    for name in only or measurements:
        say(f"{name} ...")
        started, load = perf_counter(), os.getloadavg()[0]
        try:
            measured = measurements[name]()
        except Exception as error:  # One peer that is not installed must not cost the other measurements.
            missing[name] = f"{type(error).__name__}: {error}"
            say(f"{name}: {missing[name]}")
            continue
        results |= measured.pop("results")
        for lacking, reason in measured.pop("missing", {}).items():
            missing[lacking] = reason
            say(f"{lacking}: {reason}")
        if "skipped" in measured:
            missing[name] = measured.pop("skipped")
            continue
        details[name] = {**measured, "seconds": round(perf_counter() - started, 1), "load_before": round(load, 2)}
    found["machine"]["load_average_after"] = round(os.getloadavg()[0], 2)
    return {**found, "results": results, "targets": judge_engine(results), "missing": missing, "details": details}
