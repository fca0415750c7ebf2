"""docs/heads.md shows the committed results, and what it says about them is so."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from subbit.methods.head_codecs import head_codec

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


def test_fewer_bytes_cost_little_accuracy_with_the_default_codec() -> None:
    coded = {(row["job"], row["examples"], row["codec"]): row for row in ROWS if "codec" in row}
    pairs = [
        (row, coded[job, examples, head_codec("auto")])
        for (job, examples, codec), row in coded.items()
        if codec == "float32"
    ]
    assert len(pairs) == 9
    assert sum(small["score"] - exact["score"] for exact, small in pairs) / len(pairs) > -0.003
    for exact, small in pairs:
        assert small["loss"] < 1.02 * exact["loss"]
        assert small["one_off_bytes"] < (0.2 if exact["width"] < 256 else 0.03) * exact["one_off_bytes"]


def test_the_lean_codec_costs_a_point_and_takes_less_than_half_where_examples_are_many() -> None:
    coded = {(row["job"], row["examples"], row["codec"]): row for row in ROWS if "codec" in row}
    pairs = [(coded[key], coded[(*key[:2], "factors")]) for key in coded if key[2] == "lean"]
    assert len(pairs) == 9
    assert sum(lean["score"] - more["score"] for lean, more in pairs) / len(pairs) > -0.013
    for lean, more in pairs:
        most = max(row["examples"] for row in ROWS if row["job"] == lean["job"])
        assert lean["one_off_bytes"] < (0.45 if lean["examples"] == most else 1) * more["one_off_bytes"]
