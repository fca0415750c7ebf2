"""The benchmark of the codecs: its bound and its drifts by hand, one small run, and the page that is made of it."""

from __future__ import annotations

import importlib
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.bench.codecs import benchmark_table, run_codec_benchmark, targets_table
from benchmarks.bench.drifts import DRIFTS, Drift, entropy, measure_drift, server_logits, thresholds_of_logits
from benchmarks.bench.flips import RATES, log2_binomial, random_flips
from benchmarks.bench.measure import best_seconds
from benchmarks.bench.references import measure_c_fuse
from benchmarks.bench.targets import Bar
from benchmarks.bench.vectors import normalised_squared_error
from rich.console import Console

from subbit.codecs.packed import count_ones, positions_of_bits
from subbit.core.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
SIZE = 20_000


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FEWEST_RUNS", "MOST_RUNS"):
            patch.setattr(f"benchmarks.bench.measure.{name}", 1)  # The speeds do not matter here.
        return run_codec_benchmark([SIZE], lambda line: None)


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("render_codecs")


def test_bound_by_hand() -> None:
    """C(4, 2) = 6; C(10, 0) = C(10, 10) = 1; C(40, 20) = 137,846,528,820."""
    assert log2_binomial(4, 2) == pytest.approx(math.log2(6))
    assert log2_binomial(10, 0) == log2_binomial(10, 10) == 0
    assert log2_binomial(40, 20) == pytest.approx(math.log2(137_846_528_820))


@pytest.mark.parametrize("rate", RATES)
def test_flips_have_their_rate(rate: float) -> None:
    """A count of n = 200,000 draws lies within 5 standard deviations sqrt(n p (1 - p)) of n p."""
    assert abs(count_ones(random_flips(200_000, rate)) - 200_000 * rate) < 5 * math.sqrt(200_000 * rate * (1 - rate))


@pytest.mark.parametrize(("drift", "expected"), list(zip(DRIFTS, (0.0120, 0.0116, 0.00206, 0.115), strict=True)))
def test_flip_rates_of_the_drifts(drift: Drift, expected: float) -> None:
    """The rate is share * E|sigmoid(x + y) - sigmoid(x)|, x ~ N(0, 2), y ~ N(0, deviation): here as a sum over a grid
    of both. The draws lie within 5 standard deviations sqrt(p (1 - p) / n) of it.
    """
    x, y = np.meshgrid(np.linspace(-12, 12, 481), np.linspace(-5, 5, 400) * drift.deviation)
    weights = np.exp(-(x**2) / 8 - y**2 / (2 * drift.deviation**2))
    moved = np.abs(1 / (1 + np.exp(-x - y)) - 1 / (1 + np.exp(-x)))
    rate = drift.share * float((weights * moved).sum() / weights.sum())
    assert rate == pytest.approx(expected, rel=0.02)
    row = measure_drift(drift, server_logits(100_000))
    assert abs(row["flip_rate"] - rate) < 5 * math.sqrt(rate * (1 - rate) / 100_000)
    assert row["flip_rate_independent"] > 0.29
    assert row["identical"]


def test_thresholds_of_logits_by_hand() -> None:
    """sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4; beyond what a float can tell from 0 and 1 the ends are kept."""
    thresholds = thresholds_of_logits(np.array([0, math.log(3), -40, 40]))
    assert thresholds.tolist() == [1 << 31, pytest.approx(3 << 30, abs=2), 1, (1 << 32) - 1]


def test_entropy_by_hand() -> None:
    """Shares 1/2, 1/4, 1/4: 1/2 + 2/4 + 2/4 = 1.5 bits."""
    assert entropy(np.array([0, 0, 3, 7])) == pytest.approx(1.5)


def test_squared_error_by_hand() -> None:
    """|(0, 1) - (3, 4)|^2 = 9 + 9, over 25."""
    vector, estimate = np.array([3, 4], np.float32), np.array([0, 1], np.float32)
    assert normalised_squared_error(estimate, vector) == pytest.approx(18 / 25)


def test_bars() -> None:
    assert Bar(1.0, most=1).as_row() == {"value": 1.0, "bar": "<= 1", "met": True}
    assert Bar(4.9, least=5).as_row() == {"value": 4.9, "bar": ">= 5", "met": False}
    assert Bar(0.57, least=0.566, most=0.576).as_row() == {"value": 0.57, "bar": "0.566 to 0.576", "met": True}
    assert not Bar(math.nan, most=1).as_row()["met"]


@pytest.mark.parametrize(("warm_up", "seconds"), [(True, 2.0), (False, 1.0)])
def test_the_run_that_compiles_does_not_count(warm_up: bool, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that the function moves: runs of 1, 4, 2 and 3 seconds. A run to warm up is the first one, so that the
    best of the other three is 2; without it the first is long enough to stand alone.
    """
    now, durations = [0.0], iter([1.0, 4.0, 2.0, 3.0])
    monkeypatch.setattr("time.thread_time", lambda: now[0])

    def function() -> float:
        now[0] += next(durations)
        return now[0]

    assert best_seconds(function, warm_up) == (seconds, 10.0 if warm_up else 1.0)


def test_bulk_query_of_the_c_filter_finds_every_key() -> None:
    flips = random_flips(20_001, 0.02)
    answers = measure_c_fuse(positions_of_bits(flips, 20_001), 20_001).answers
    assert np.array_equal(answers & flips, flips)
    assert count_ones(answers) - count_ones(flips) < 20_001 / 100


def test_small_run(results: dict[str, Any]) -> None:
    (rows,) = results["flips"].values()
    assert [row["rate"] for row in rows] == list(RATES)
    for row in rows:
        for label, codec in row["codecs"].items():
            assert codec["false_negatives"] == 0, label
            assert codec["false_positives"] == 0 or codec["group"] == "filter", label
            assert codec["over_bound"] > 1 or codec["group"] == "filter", label
            assert codec["bpp"] == pytest.approx(8 * codec["frame_bytes"] / SIZE, rel=1e-5)
        assert row["codecs"]["packed"]["frame_bytes"] == 40 + SIZE // 8
    assert results["context_identical"]
    assert results["kernels"]["range_prior"]["identical"]
    assert results["kernels"]["filters"]["same_answers"]
    for ways in results["counts_bpp"].values():
        assert all(row["identical"] for row in ways.values())
    assert results["eden1_nmse"]["1048576"] == pytest.approx(math.pi / 2 - 1, abs=0.005)
    assert results["targets"]["lane_query_ns"]["value"] == results["lane_query_ns"]
    assert json.loads(json.dumps(results)) == results


def test_tables(results: dict[str, Any]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(benchmark_table(results))
    console.print(targets_table(results))
    text = console.export_text()
    assert "bfuse8 4-wise" in text
    assert "…" not in text
    assert "sampler_speedup_over_torch_bernoulli" in text


def test_too_small_a_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 10,000 places, not 9,999"):
        run_codec_benchmark([9_999], lambda line: None)


def test_the_page_has_the_committed_numbers(renderer: Any) -> None:
    page, committed = renderer.PAGE.read_text(), json.loads(renderer.RESULTS.read_text())
    assert renderer.with_sections(page, committed) == page, "run python benchmarks/render_codecs.py"


def test_every_section_is_on_the_page(renderer: Any, results: dict[str, Any], tmp_path: Path) -> None:
    page = "".join(f"<!-- generated: {name} -->\nstale\n<!-- /generated -->\n" for name in renderer.SECTIONS)
    rendered = renderer.with_sections(page, results)
    assert "stale" not in rendered
    assert renderer.with_sections(rendered, results) == rendered
    assert {section["name"] for section in renderer.SECTION.finditer(renderer.PAGE.read_text())} == set(
        renderer.SECTIONS
    )
    renderer.save_plot(results, tmp_path / "plot.svg")
    first = (tmp_path / "plot.svg").read_bytes()
    renderer.save_plot(results, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_bytes() == first
