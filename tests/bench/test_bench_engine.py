"""The benchmark of the engine: its clock, its tables and its rivals by hand, and small measurements."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bench.engine.cache import cache_results
from benchmarks.bench.engine.child import ChildError, run_child
from benchmarks.bench.engine.fedavg import measure_rounds
from benchmarks.bench.engine.jobs import Clock, Job
from benchmarks.bench.engine.run import run_engine_benchmark
from benchmarks.bench.engine.steps import measure_steps
from benchmarks.bench.engine.targets import LEAST, MOST, engine_table, judge_engine
from benchmarks.bench.engine.vitb import measure_vitb
from benchmarks.bench.scaling import measure_clients, measure_parameters, scaling_table
from rich.console import Console

from subbit.core.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
SMALL = Job("mlp", (1, 28, 28), clients=4, participants=2, examples=40, batch_size=20)


def shown(table: Any) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_clock_counts_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 9, 1, 2 and 5 seconds with 100 seconds between them: the first compiles, the last evaluates."""
    now = [0.0]
    monkeypatch.setattr("benchmarks.bench.engine.jobs.time.process_time", lambda: now[0])
    monkeypatch.setattr("benchmarks.bench.engine.jobs.time.perf_counter", lambda: 2 * now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    clock = Clock(lambda: wait(100))
    for seconds in (9, 1, 2, 5):
        wait(seconds)
        clock(None)
    assert clock.warm() == ([1, 2], [2, 4])


def test_targets_by_hand() -> None:
    judged = judge_engine({"engine_over_plain": MOST["engine_over_plain"], "two_workers_speedup": 1.0, "other": 3.0})
    assert {name: row["met"] for name, row in judged.items()} == {
        "engine_over_plain": True,
        "two_workers_speedup": False,
    }
    assert not MOST.keys() & LEAST.keys()


def test_shares_of_the_limit_by_hand() -> None:
    """Training: 6 s are 5 at best and 5.5 with the cache, 5 / 5.5 of the best speed-up. Head: 4 s become 1."""
    found = {
        "off": {"training": 6.0, "evaluation": 3.0, "head": 4.0},
        "limit": {"training": 5.0, "evaluation": 1.0},
        "exact": {"training": 5.5, "evaluation": 2.0, "head": 1.0},
    }
    shares = {"cache_speedup_training": 5 / 5.5, "cache_speedup_evaluation": 0.5, "cache_speedup_head": 4.0}
    assert cache_results(found) == pytest.approx(shares)


def test_one_failure_does_not_cost_the_others() -> None:
    def absent() -> dict[str, Any]:
        raise ImportError("no such peer")

    measurements = {
        "absent": absent,
        "new": lambda: {"results": {}, "skipped": "no key"},
        "plain": lambda: {"results": {"engine_over_plain": 99.0}, "rounds": 3},
    }
    lines: list[str] = []
    found = run_engine_benchmark((), lines.append, measurements)
    assert found["missing"] == {"absent": "ImportError: no such peer", "new": "no key"}
    assert found["results"] == {"engine_over_plain": 99.0}
    assert found["details"]["plain"]["rounds"] == 3
    assert json.loads(json.dumps(found)) == found
    text = shown(engine_table(found))
    assert "missed" in text
    assert "no such peer" in text
    assert "plain ..." in lines
    only = run_engine_benchmark(["plain"], measurements=measurements)
    assert not only["missing"]
    with pytest.raises(ConfigError, match="--only plian"):
        run_engine_benchmark(["plian"], measurements=measurements)


def test_child_reports_what_it_used() -> None:
    work = (
        "import json, time\nwhile time.process_time() < 0.3: pass\ntext = b'x' * 2**28\nprint(json.dumps({'done': 1}))"
    )
    spent = run_child(["-c", work])
    assert spent.found == {"done": 1}
    assert 0.3 <= spent.cpu <= 5
    assert spent.peak_mb > 256
    with pytest.raises(ChildError, match="exit status 3"):
        run_child(["-c", "raise SystemExit(3)"])
    with pytest.raises(ChildError, match="exit status -9"):
        run_child(["-c", "import time; time.sleep(60)"], timeout=0.5)


def test_small_measurements() -> None:
    rounds = measure_rounds(SMALL, rounds=2)
    assert rounds["parameters"] == 266_610
    assert len(rounds["engine_rounds"]) == 2
    assert rounds["ratio"] == pytest.approx(rounds["engine_cpu"] / rounds["plain_cpu"])
    steps = measure_steps(steps=1, repeats=1, batch=2)
    assert set(steps) == {"mask", "zampling", "finetune"}
    assert min(steps.values()) > 0
    tiny = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 6}
    found = measure_vitb(8, {}, image_size=64, **tiny)
    assert found["parameters"] == 5 * (4 * 32 * 32 + 2 * 32 * 64)
    assert found["seconds_per_image"] > 0


def test_small_scaling() -> None:
    row = measure_clients(20, 5)
    assert row["ms_per_turn"] == pytest.approx(1000 * row["cpu"] / 5)
    size = measure_parameters(10_000)
    assert size["parameters"] == 10_000
    text = shown(scaling_table({"all": [row], "few": [], "parameters": [size], "workers": []}))
    assert "5 of 20 clients" in text
    assert "10,000 parameters" in text
