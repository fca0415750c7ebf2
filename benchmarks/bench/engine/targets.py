"""Targets for the engine, and whether this run met them. A missed target is reported and fails nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.bench.targets import Bar

MOST = {
    "engine_over_plain": 1.1,
    "engine_over_plain_with_startup": 1.5,
    "mask_step_over_finetune": 1.1,
    "zampling_step_over_finetune": 1.25,
    "aggregate_ns_per_param_client": 2.0,
    "server_memory_growth": 0.1,
    "help_seconds": 0.3,
    "list_seconds": 1.0,
    "codecs_import_seconds": 0.5,
    "vitb_seconds_per_image": 0.233,
    "vitb_peak_gb": 3.0,
    "demo_cpu_seconds": 120.0,
}
LEAST = {
    "flower_over_engine": 2.0,
    "pfl_over_engine": 1.0,
    "pfl_over_engine_vit": 1.0,
    "two_workers_speedup": 1.7,
    "cache_speedup_training": 0.9,
    "cache_speedup_evaluation": 0.9,
    "cache_speedup_head": 5.0,
}


def judge_engine(results: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Name of the target to {value, bar, met}, for what was measured."""
    bars = {name: Bar(results[name], most=most) for name, most in MOST.items() if name in results}
    bars |= {name: Bar(results[name], least=least) for name, least in LEAST.items() if name in results}
    return {name: bars[name].as_row() for name in (*MOST, *LEAST) if name in bars}


def engine_table(measured: Mapping[str, Any]) -> Table:
    table = Table("measured", "value", "target", "", title="subbit's engine")
    for name, row in measured["targets"].items():
        table.add_row(name, f"{row['value']:.4g}", row["bar"], "met" if row["met"] else "missed")
    for name, reason in measured["missing"].items():
        table.add_row(name, "-", "", reason.splitlines()[-1][:60])
    return table
