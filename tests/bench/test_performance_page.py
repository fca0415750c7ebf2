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
    renderer.save_plot(scaling, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000
