"""docs/scale.md has the committed numbers, and ViT-B takes no more memory than its target."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("render_scale")


def test_the_page_has_the_committed_numbers(renderer: Any) -> None:
    page = renderer.PAGE.read_text()
    assert renderer.with_sections(page, renderer.committed()) == page, "run python benchmarks/render_scale.py"
    assert {section["name"] for section in renderer.SECTION.finditer(page)} == set(renderer.SECTIONS)


def test_vit_b_keeps_to_its_memory(renderer: Any) -> None:
    rows = {(row["network"], row["way"]): row for row in renderer.committed()["rows"]}
    measured = rows["ViT-B/32", "default masks"]["measured"]
    assert measured["trained"] == 5 * (4 * 768 * 768 + 2 * 768 * 3072) == 35_389_440
    assert measured["peak_gb"] <= 2.5


def test_estimates_are_near_what_was_measured(renderer: Any) -> None:
    """Beside the libraries: never more than half too low, or a tenth too high, once the network is what counts."""
    compared = 0
    for row in renderer.committed()["rows"]:
        if "measured" in row and row["counted"]["total"] > 5e7:
            used = 1e9 * (row["measured"]["peak_gb"] - row["measured"]["libraries_gb"])
            assert 0.5 * used < row["counted"]["memory"]["float32"] < 1.1 * used
            compared += 1
    assert compared >= 3
