"""What aggregation costs a server, measured by `benchmarks.bench.server` where this version has it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from benchmarks.bench.engine.child import run_child

MODULE = "benchmarks.bench.server"
SIZE, CLIENTS = 35_389_440, 30
"""The masked weights of ViT-B's last five blocks."""
CALL = f"import json; from {MODULE} import measure_server; print(json.dumps(measure_server({SIZE}, {CLIENTS})))"


def server() -> dict[str, Any]:
    if find_spec(MODULE) is None:
        return {"results": {}, "skipped": f"no {MODULE} in this version"}
    found = run_child(["-c", CALL]).found
    names = {"aggregate_ns_per_param_client": "aggregate_ns_per_param_client", "server_memory_growth": "peak_growth"}
    results = {name: found[key] for name, key in names.items() if key in found}
    # The default codec trades time for bytes; these are the fast ones.
    for label, name in (("deltamask rice", "rice"), ("deltamask lane", "lane"), ("fedpm packed", "packed")):
        results[f"aggregate_ns_per_param_client_{name}"] = found["cases"][label]["ns_per_param_client"]
    return {"results": results, **found}
