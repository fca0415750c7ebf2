"""The table of the arena from kept results, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subbit.arena.jobs import Entry, Header, Job
from subbit.arena.kept_results import Record, write_record
from subbit.arena.standings import HEADINGS, Row, as_record, cells, standing

LABELS = ("head-alone", "central", "fedavg", "lora", "subbit", "fedpm", "eden")
JOB = Job("hand", Header(what="by hand"), {}, {label: Entry(label, label) for label in LABELS})


def run(seed: int, score: float, by_round: list[float], total: int, **others: Any) -> dict[str, Any]:
    found = {"setting": "", "seed": seed, "score": score, "score_name": "accuracy", "higher_is_better": True}
    found |= {"score_by_round": by_round, "bytes_by_round": [total * (n + 1) for n in range(len(by_round))]}
    return found | {
        "one_off_bytes": 1e6,
        "total_bytes": total * len(by_round),
        "seconds": 9.0,
        "wall": 10.0,
        "cpu": 9.0,
        **others,
    }


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Row]:
    kept = {
        "head-alone": [run(0, 0.6, [], 0), run(1, 0.6, [], 0)],
        "central": [run(0, 0.8, [0.8], 5), run(1, 0.8, [0.8], 5)],
        "fedavg": [run(0, 0.75, [0.65, 0.75], 40_000_000), run(1, 0.77, [0.71, 0.77], 40_000_000)],
        "lora": [run(0, 0.73, [0.73], 1_000_000), run(1, 0.75, [0.75], 1_000_000)],
        "subbit": [run(0, 0.65, [0.65], 1_000), run(1, 0.66, [0.66], 1_000)],
        "fedpm": [run(0, 0.70, [0.70], 2_000_000), {"setting": "", "seed": 1, "error": "no quorum", "wall": 1.0}],
    }
    for label, runs in kept.items():
        record = Record("hand", label, JOB.fingerprint(JOB.entries[label]), chosen="", runs=runs)
        write_record(tmp_path, record)
    found = standing(tmp_path, JOB)
    gap = as_record(found)["gap"]
    assert (gap["measurable"], gap["logarithm"]) == (True, False), "an accuracy is as it is, a perplexity its logarithm"
    assert [row.method for row in found.rows] == ["head-alone", "central", "fedavg", "lora", "fedpm", "subbit", "eden"]
    return {row.method: row for row in found.rows}


def test_means_spreads_and_shares(rows: dict[str, Row]) -> None:
    fedavg = rows["fedavg"]
    assert (fedavg.score, fedavg.spread) == pytest.approx((0.76, 0.02 / 2**0.5))
    assert (fedavg.gap_closed, fedavg.gap_spread) == pytest.approx((0.8, 0.1 / 2**0.5))
    assert (rows["head-alone"].gap_closed, rows["central"].gap_closed) == pytest.approx((0.0, 1.0))


def test_bytes_until_half_and_most_of_the_gap(rows: dict[str, Row]) -> None:
    """Half is .70: seed 0 of fedavg gets there in its second round, seed 1 in its first. 80% is .76: seed 0 never."""
    assert (rows["fedavg"].mb_to_50, rows["fedavg"].mb_to_80) == (60.0, None)
    assert rows["lora"].mb_to_50 == 1.0
    assert cells(rows["fedavg"]) == ["fedavg", "0.76 ± 0.014", "80% ± 7%", "yes", "60", "never", "1", "80", "9", "2"]
    assert len(cells(rows["fedavg"])) == len(HEADINGS)


def test_what_the_seeds_do_not_tell_apart_is_level(rows: dict[str, Row]) -> None:
    """fedavg .76 and lora .74, both with a deviation of .0141: .02 is less than twice that. subbit is .105 below."""
    assert rows["fedavg"].level_with_best
    assert rows["lora"].level_with_best
    assert rows["subbit"].level_with_best is False
    assert rows["lora"].level_with == ("fedavg", "fedpm")
    assert rows["fedpm"].level_with_best, "one seed tells nothing apart"
    assert rows["head-alone"].level_with_best is None


def test_what_failed_and_what_was_not_run_is_told(rows: dict[str, Row]) -> None:
    assert cells(rows["fedpm"])[-1] == "1, 1 failed"
    assert cells(rows["eden"])[1] == "not run"
    assert rows["central"].total_mb is None, "training in one place sends nothing"
