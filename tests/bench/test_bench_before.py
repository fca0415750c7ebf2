"""The code before is measured in turns with the code now, in one run, and never at its cost."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bench.engine.before import COMMIT, BeforeError, in_turns
from benchmarks.bench.engine.child import ROOT, ChildError, Spent
from benchmarks.bench.engine.run import run_engine_benchmark
from benchmarks.bench.engine.startup import DEMO, DEMO_BEFORE, demo
from benchmarks.bench.engine.targets import engine_table
from benchmarks.bench.engine.vitb import vitb
from rich.console import Console

ABSENT = BeforeError("git archive 4aae5ff: fatal: no such object\ngit fetch --unshallow")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_demo_before_is_the_same_job() -> None:
    shown = subprocess.run(["git", "show", f"{COMMIT}:{DEMO_BEFORE}"], cwd=ROOT, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip("not a clone with its whole history")
    before, now = tomllib.loads(shown.stdout), tomllib.loads((ROOT / DEMO).read_text())
    assert {**before, "name": ""} == {**now, "name": ""}


def test_turns() -> None:
    order: list[str] = []

    def run(label: str, number: int) -> str:
        order.append(f"{label} {number}")
        if label == "late" and number == 2:
            raise ChildError("killed")
        return order[-1]

    ours, theirs, reason = in_turns(partial(run, "now"), partial(run, "before"), 2)
    assert order == ["now 0", "before 0", "now 1", "before 1", "now 2", "before 2"]
    assert (ours, theirs, reason) == (["now 1", "now 2"], ["before 1", "before 2"], "")
    ours, theirs, reason = in_turns(partial(run, "now"), partial(run, "late"), 3)
    assert (ours, theirs, reason) == (["now 1", "now 2", "now 3"], [], "ChildError: killed")


def demo_runner(*seconds: float) -> Callable[..., Spent]:
    """Writes summaries as `subbit run` does, and uses these CPU seconds, one after another."""
    left = list(seconds)

    def run(words: list[str], **options: Any) -> Spent:
        if "run" not in words:
            return Spent(1.0, 1.0, 1.0, '{"torch": 100.0, "onednn": 200.0}')
        keys = dict(word.split("=", 1) for word in words if "=" in word)
        folder = Path(keys["folder"], keys["name"])
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({"accuracy": 0.5, "model_sha256": "ab"}))
        assert ("rounds" in keys) == (len(left) == len(seconds)), "the first run alone is short"
        return Spent(left.pop(0), 3.0, 1.0, "")

    return run


def absent(words: list[str], **options: Any) -> Spent:
    raise ABSENT


def test_ratio_of_the_demo_is_of_one_run() -> None:
    """The best of two after the one that warms up: 5 s of 6 and 5 now, 10 s of 10 and 12 before."""
    measured = {"demo": partial(demo, demo_runner(1.0, 6.0, 5.0), demo_runner(9.0, 10.0, 12.0))}
    found = run_engine_benchmark(measurements=measured)
    assert found["results"] == {"demo_cpu_seconds": 5, "demo_before_cpu_seconds": 10, "demo_over_before": 0.5}
    assert found["targets"]["demo_over_before"]["met"]
    assert not found["missing"]
    details = found["details"]["demo"]
    assert (details["cpu"], details["before"]["cpu"]) == ([6, 5], [10, 12])
    assert details["before"]["commit"] == COMMIT
    assert details["products_gflops"] == {"torch": 100, "onednn": 200}


def vitb_run(words: list[str], **options: Any) -> Spent:
    seconds = 0.2 if "exact" in words else 0.4
    return Spent(1.0, 1.0, 1.0, json.dumps({"seconds_per_image": seconds, "peak_gb_after_training": 2.0}))


def vitb_before(words: list[str], **options: Any) -> Spent:
    return Spent(1.0, 1.0, 1.0, json.dumps({"calls": [{"seconds_per_image": seconds} for seconds in (0.1, 0.9, 0.8)]}))


def test_ratio_of_vitb_is_of_one_run() -> None:
    """0.2 s with the cache against 0.8, the best of the calls before except the first."""
    results = vitb(vitb_run, vitb_before)["results"]
    assert results["vitb_before_seconds_per_image"] == 0.8
    assert results["vitb_cached_over_before"] == pytest.approx(0.25)


def test_code_now_is_measured_without_the_code_before() -> None:
    measured = {"vitb": partial(vitb, vitb_run, absent), "demo": partial(demo, demo_runner(1.0, 6.0, 5.0), absent)}
    lines: list[str] = []
    found = run_engine_benchmark((), lines.append, measured)
    assert found["results"]["demo_cpu_seconds"] == 5
    assert found["results"]["vitb_cached_seconds_per_image"] == 0.2
    assert set(found["details"]) == {"vitb", "demo"}
    ratios = {"vitb_cached_over_before", "demo_over_before"}
    assert set(found["missing"]) == ratios
    assert not ratios & (set(found["results"]) | set(found["targets"]))
    assert found["missing"]["demo_over_before"] == f"BeforeError: {ABSENT}"
    assert f"demo_over_before: BeforeError: {ABSENT}" in lines
    console = Console(width=120)
    with console.capture() as shown:
        console.print(engine_table(found))
    assert shown.get().count("git fetch --unshallow") == 2
