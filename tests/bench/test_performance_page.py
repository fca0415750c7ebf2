"""docs/performance.md has the committed numbers and plot."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("render_performance")


def test_the_page_has_the_committed_numbers(renderer: Any, tmp_path: Path) -> None:
    page, results = renderer.PAGE.read_text(), renderer.committed()
    assert renderer.with_sections(page, results) == page, "run python benchmarks/render_performance.py"
    assert {section["name"] for section in renderer.SECTION.finditer(page)} == set(renderer.SECTIONS)
    renderer.save_plot(results["scaling"], tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_bytes() == renderer.PLOT.read_bytes(), (
        "run python benchmarks/render_performance.py"
    )


def test_growth_by_hand(renderer: Any) -> None:
    """From 10 to 20 clients memory grows from 5 to 25 MB: 2 MB for each."""
    rows = [{"clients": 1, "peak_mb": 9}, {"clients": 10, "peak_mb": 5}, {"clients": 20, "peak_mb": 25}]
    assert renderer.slope(rows, "peak_mb") == 2


def test_every_section_is_written(renderer: Any, tmp_path: Path) -> None:
    """With made-up numbers, so that the page can be written as soon as there are real ones."""
    few = [
        {"clients": count, "participants": 10, "cpu": 0.02, "ms_per_turn": 2.0, "peak_mb": 370.0} for count in (10, 20)
    ]
    size = {"parameters": 100, "cpu": 1.0, "ns_per_parameter_turn": 9.0, "before_mb": 300.0, "peak_mb": 301.0}
    target = {"value": 1.2, "bar": "<= 1.1", "met": False}
    machine = {"cpu": "some", "logical_cpus": 2, "load_average_before": 0.1, "load_average_after": 0.2}
    engine = {"machine": machine, "versions": {"torch": "2"}, "results": {"engine_over_plain": 1.2}}
    engine |= {"targets": {"engine_over_plain": target}, "missing": {"server": "absent"}}
    engine["details"] = {"flower": {"rounds": 20, "engine_wall": {"1 workers": 10.0}, "flower_wall": 40.0}}
    scaling = {"few": few, "all": few, "parameters": [size], "workers": [{"workers": 1, "round_wall": 2.0}]}
    page = "".join(f"<!-- generated: {name} -->\nstale\n<!-- /generated -->\n" for name in renderer.SECTIONS)
    rendered = renderer.with_sections(page, {"now": engine, "before": engine, "scaling": scaling})
    assert "stale" not in rendered
    assert "| `engine_over_plain` | 1.2 | 1.2 | <= 1.1 | **missed** |" in rendered
    assert "The run above did not measure the code before.\n" in rendered
    renderer.save_plot(scaling, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_seconds_before_are_those_of_the_same_run(renderer: Any) -> None:
    """10 s before and 5 now are from one run. The earlier 99 s before, of another machine, are nowhere."""
    numbers = {"demo_before_cpu_seconds": 10.0, "demo_cpu_seconds": 5.0, "demo_over_before": 0.5}
    numbers |= {"vitb_before_seconds_per_image": 0.4, "vitb_cached_seconds_per_image": 0.1}
    numbers |= {"vitb_cached_over_before": 0.25}
    details = {"demo": {"products_gflops": {"torch": 100.0, "onednn": 230.0}}}
    now = {"results": numbers, "details": details, "missing": {}}
    now["targets"] = {name: {"value": 0.5, "bar": "<= 1", "met": True} for name in ("help_seconds", "vitb_peak_gb")}
    earlier = {"demo_cpu_seconds": 99.0, "help_seconds": 99.0, "vitb_peak_gb": 3.0}
    results = {"now": now, "before": {"results": earlier}}
    text = renderer.SECTIONS["before"](results)
    assert "| the demo | 10.0 s | 5.0 s | 0.50 |" in text
    assert "| an image of ViT-B/32 in training | 0.400 s | 0.100 s | 0.25 |" in text
    assert "100 GFLOP/s" in text
    assert "230: 2.30 times" in text
    assert "did not measure" not in text
    targets = renderer.SECTIONS["targets"](results)
    assert "| `help_seconds` |  | 0.5 |" in targets
    assert "| `vitb_peak_gb` | 3 | 0.5 |" in targets


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"demo_cpu_seconds": 5.0}, "The run above did not measure the code before."),
        (
            {"demo_cpu_seconds": 5.0, "demo_over_before": 0.5},
            "before: `demo_over_before` is against seconds of another",
        ),
    ],
    ids=["no history", "an old run"],
)
def test_page_without_seconds_before(renderer: Any, numbers: dict[str, float], said: str) -> None:
    now = {"results": numbers, "details": {"demo": {"products_gflops": {"torch": 100.0}}}}
    text = renderer.SECTIONS["before"]({"now": now})
    assert said in text
    assert "|" not in text
    assert "GFLOP" not in text
