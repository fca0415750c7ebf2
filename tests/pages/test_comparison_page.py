"""Reports of comparisons and of the arena."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from subbit.arena.jobs import Entry, Header, Job
from subbit.arena.kept_results import Record, write_record
from subbit.arena.standings import HEADINGS, cells, standing
from subbit.core.errors import RunFolderError
from subbit.pages.arena_page import arena_page
from subbit.pages.write_report import write_report
from subbit.report.compare import condense
from tests.pages.hand_made import HOSTILE, summary
from tests.pages.pages_parser import Parsed, check_page


def compared(folder: Path, runs: dict[str, list[dict[str, Any]]], shares: dict[str, float] | None = None) -> Parsed:
    rows = {label: condense(found, None) for label, found in runs.items()}
    for label, share in (shares or {}).items():
        rows[label]["gap_closed"] = share
    seeds = len(next(iter(runs.values())))
    content = {"target": None, "seeds": seeds, "methods": rows, "runs": runs}
    (folder / "comparison.json").write_text(json.dumps(content))
    return check_page(write_report(folder).read_text(encoding="utf-8"))


def test_a_comparison_has_rows_curves_floor_and_ceiling(tmp_path: Path) -> None:
    runs = {
        "head-alone": [summary(score=0.5, seed=0), summary(score=0.5, seed=1)],
        "central": [summary(score=0.9, seed=0), summary(score=0.9, seed=1)],
        "fedavg": [summary(score=0.7, seed=0), summary(score=0.8, seed=1)],
        HOSTILE: [summary(score=0.6, seed=0), summary(score=0.6, seed=1)],
    }
    found = compared(tmp_path, runs, {"head-alone": 0.0, "central": 1.0, "fedavg": 0.625, HOSTILE: 0.25})
    (lead,) = found.all("p", class_="lead")
    assert lead["text"] == (
        "fedavg is the best of 2: accuracy 0.7500 (62% of the gap closed), 0.1250 at the start, floor 0.5000, "
        "ceiling 0.9000; 0.01 MB were sent both ways."
    )
    assert [each["text"] for each in found.all("span", class_="tag")] == ["floor", "ceiling"]
    assert "0.7500 ± 0.0707" in found.text
    by_bytes, by_round, spread = found.plots.values()
    for plot in (by_bytes, by_round):
        assert [each["name"] for each in plot["series"]] == ["fedavg", HOSTILE]
        assert plot["lines"] == [{"name": "floor", "y": 0.5}, {"name": "ceiling", "y": 0.9}]
    assert by_bytes["log"]
    assert [each["y"] for each in spread["series"]] == [[0.5, 0.5], [0.9, 0.9], [0.7, 0.8], [0.6, 0.6]]


def test_lower_is_better_for_a_perplexity(tmp_path: Path) -> None:
    kind = {"score_name": "perplexity", "higher_is_better": False, "score_by_round": [30.0, 25.0, 20.0]}
    runs = {
        "start": [summary(**kind, score=40.0)],
        "central": [summary(**kind, score=10.0)],
        "fedavg": [summary(**kind, score=20.0)],
        "fedpm": [summary(**kind, score=30.0)],
    }
    found = compared(tmp_path, runs)
    (lead,) = found.all("p", class_="lead")
    assert lead["text"].startswith("fedavg is the best of 2: perplexity 20.0000")
    assert [line["y"] for line in next(iter(found.plots.values()))["lines"]] == pytest.approx([40.0, 10.0])


def test_without_floors_there_are_no_lines_and_with_one_seed_no_spread(tmp_path: Path) -> None:
    found = compared(tmp_path, {"fedavg": [summary()], "fedpm": [summary(score=0.5)]})
    assert [plot["lines"] for plot in found.plots.values()] == [[], []]
    assert "gap closed" not in found.text


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"methods": {"a": 1}, "runs": {"a": 1}}', '{"methods": 3, "runs": 3}']
)
def test_a_damaged_comparison_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(RunFolderError):
        write_report(tmp_path)


def kept(score: float, total: int, **others: Any) -> dict[str, Any]:
    found = summary(score=score, total_bytes=total, setting="", wall=1.0, cpu=1.0)
    return {key: value for key, value in {**found, **others}.items() if key != "schema"}


def test_the_arena_has_the_table_of_the_command_and_a_scatter(tmp_path: Path) -> None:
    labels = ("head-alone", "central", "fedavg", HOSTILE.replace("/", "_"), "eden")
    job = Job("hand", Header(what=HOSTILE), {}, {label: Entry(label, "fedavg") for label in labels})
    scores = {"head-alone": 0.5, "central": 0.9, "fedavg": 0.8, labels[3]: 0.7}
    for label, score in scores.items():
        runs = [kept(score, 5_000_000, seed=seed) for seed in (0, 1)]
        write_record(tmp_path, Record("hand", label, job.fingerprint(job.entries[label]), chosen="", runs=runs))
    shown = standing(tmp_path, job)
    found = check_page(arena_page([shown]))
    assert "fedavg is the best of 2: accuracy 0.8000, floor 0.5000, ceiling 0.9000; 5.00 MB" in found.text
    (region,) = found.all("div", **{"aria-label": "hand: results"})
    told = [each["text"] for each in found.inside(region, "td")]
    assert told == [text for row in shown.rows for text in cells(row)[1:]]
    assert len(found.inside(region, "tr")) == 1 + len(shown.rows)
    assert len(told) == len(shown.rows) * (len(HEADINGS) - 1)
    (plot,) = found.plots.values()
    assert [(each["name"], each["x"], each["y"]) for each in plot["series"]] == [
        ("fedavg", [5.0], [0.8]), (labels[3], [5.0], [0.7]),
    ]  # fmt: skip
    assert plot["log"]
    assert [line["y"] for line in plot["lines"]] == [0.5, 0.9]


def test_an_arena_without_results_says_so(tmp_path: Path) -> None:
    job = Job("hand", Header(what="by hand"), {}, {"fedavg": Entry("fedavg", "fedavg")})
    found = check_page(arena_page([standing(tmp_path, job)]))
    assert "No method has a result yet." in found.text
    assert math.isclose(len(found.plots), 0)
