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
