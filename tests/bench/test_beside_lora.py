"""Bytes to the score of another method, by hand."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def beside_lora(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("beside_lora")


def run(scores: list[float | None], before: float = 0.5, higher: bool = True) -> dict[str, Any]:
    kept = {"score_before": before, "score": scores[-1], "score_by_round": scores, "higher_is_better": higher}
    return {**kept, "bytes_by_round": [1000, 2000, 3000], "total_bytes": 3000, "one_off_bytes": 400}


def test_the_first_round_in_which_the_mean_is_as_good(beside_lora: ModuleType) -> None:
    runs = [run([None, 0.7, 0.8]), run([None, 0.6, 0.8])]
    reached = {score: beside_lora.first_reached(runs, score) for score in (0.5, 0.64, 0.66, 0.79, 0.81)}
    assert reached == {0.5: 400, 0.64: 2000, 0.66: 3000, 0.79: 3000, 0.81: None}


def test_a_lower_perplexity_is_better(beside_lora: ModuleType) -> None:
    runs = [run([90.0, 70.0, 60.0], before=110.0, higher=False)]
    assert [beside_lora.first_reached(runs, score) for score in (120, 90, 61, 59)] == [400, 1000, 3000, None]


def test_the_table_has_the_jobs_that_have_both(beside_lora: ModuleType, tmp_path: Path) -> None:
    for job, methods in {"one": ["subbit", "lora-eden"], "two": ["subbit"]}.items():
        (tmp_path / job).mkdir()
        for method in methods:
            runs = [run([0.6, 0.7, 0.8]), {"seed": 1, "error": "quorum"}]
            (tmp_path / job / f"{method}.json").write_text(json.dumps({"runs": runs}))
    table = beside_lora.beside_lora({"lora": beside_lora.read_pairs(tmp_path)})
    assert table.splitlines()[2:] == ["| *one* | 0.500 | 0.800 | 0.003 | 0.0004 | `subbit` | 0.003 | 1/1.0 |"]


def test_where_lora_ends_below_its_start_there_is_nothing_to_reach(beside_lora: ModuleType) -> None:
    pair = ([run([0.6, 0.7, 0.8])], [run([0.4, 0.4, 0.4])])
    table = beside_lora.beside_lora({"lora": {("one", "subbit"): pair}})
    assert table.splitlines()[2].endswith("| `subbit` | - | - |")
