"""docs/heads.md shows the committed results, and what it says about them is so."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from subbit.methods.head_fits import head_codec

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "benchmarks" / "results" / "heads.json").read_text())


def test_the_page_shows_the_committed_results() -> None:
    text = (ROOT / "docs" / "heads.md").read_text()
    assert runpy.run_path(str(ROOT / "benchmarks" / "render_heads.py"))["rendered_page"](text) == text


def test_the_default_head_is_never_worse_than_a_fixed_one_and_near_the_best_in_hindsight() -> None:
    found = {(row["job"], row["examples"], row["head"]): row for row in ROWS if "head" in row}
    assert len({key[0] for key in found}) == 3
    for job, examples in {key[:2] for key in found}:
        auto, plain, best = (found[job, examples, head] for head in ("auto", "plain", "hindsight"))
        assert auto["score"] >= plain["score"]
        assert auto["score"] >= best["score"] - 0.02
        assert auto["loss"] <= 1.2 * best["loss"]


def test_fewer_bytes_cost_no_accuracy_with_the_default_codec() -> None:
    for job in {row["job"] for row in ROWS}:
        coded = {row["codec"]: row for row in ROWS if row["job"] == job and "codec" in row}
        small = coded[head_codec("auto", coded["float32"]["width"])]
        assert abs(coded["float32"]["score"] - small["score"]) < 0.005
        assert small["one_off_bytes"] < 0.65 * coded["float32"]["one_off_bytes"]
