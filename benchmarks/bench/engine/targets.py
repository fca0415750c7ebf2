"""Targets for the engine, and whether this run met them. A missed target is reported and fails nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.bench.targets import Bar

MOST = {
    "engine_over_plain": 1.05,
    "engine_over_plain_with_startup": 1.3,
    "mask_step_over_finetune": 1.08,
    "zampling_step_over_finetune": 1.3,
    "aggregate_ns_per_param_client": 1.2,
    "aggregate_ns_per_param_client_rice": 1.2,
    "aggregate_ns_per_param_client_lane": 1.2,
    "aggregate_ns_per_param_client_packed": 1.2,
    "server_memory_growth": 0.05,
    "help_seconds": 0.5,
    "list_seconds": 0.5,
    "codecs_import_seconds": 1.0,
    "vitb_cached_over_before": 0.6,
    "vitb_peak_gb": 2.5,
    "demo_over_before": 0.5,
}
LEAST = {
    "flower_over_engine": 3.5,
    "pfl_over_engine": 1.0,
    "pfl_over_engine_vit": 1.0,
    "two_workers_speedup": 1.8,
    "cache_speedup_training": 0.9,
    "cache_speedup_evaluation": 0.9,
    "cache_speedup_head": 20.0,
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
