"""The share of the gap closed, the bytes until then, and which scores are equal: by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError
from subbit.report.baselines import BASELINES, added, expand, find_gap, kind
from subbit.report.compare import comparison_table, parse_contender, with_baselines
from subbit.report.gap import Gap, Level, equal


def summary(score: float, **others: Any) -> dict[str, Any]:
    return {"score": score, "score_name": "accuracy", "higher_is_better": True, **others}


def test_the_share_of_the_gap_by_hand() -> None:
    """Floor .7, ceiling .9: .75 is a quarter of the way, .65 a quarter below the floor, .95 a quarter above."""
    gap = Gap(Level(0.7), Level(0.9), "accuracy", higher=True)
    assert [gap.share_of(score) for score in (0.75, 0.65, 0.95, 0.9)] == pytest.approx([0.25, -0.25, 1.25, 1.0])


def test_lower_scores_are_better_for_errors_and_perplexities() -> None:
    gap = Gap(Level(4.0), Level(2.0), "rmse", higher=False)
    assert [gap.share_of(score) for score in (4.0, 3.5, 1.0)] == pytest.approx([0.0, 0.25, 1.5])
    # Perplexities e^4 and e^2 are losses of 4 and 2: e^3.5 is a quarter of the way, though nearly half in perplexity.
    gap = Gap(Level.of([math.exp(4)], "perplexity"), Level.of([math.exp(2)], "perplexity"), "perplexity", higher=False)
    assert gap.share_of(math.exp(3.5)) == pytest.approx(0.25)


def test_a_ceiling_that_is_not_above_the_floor_leaves_no_gap() -> None:
    assert Gap(Level(0.9), Level(0.8), "accuracy", higher=True).share_of(0.85) is None
    assert Gap(Level(2.0), Level(3.0), "rmse", higher=False).share_of(2.5) is None
    # .02 above with deviations of .03 and .04: pooled sqrt((9 + 16) / 2) = 3.54 hundredths.
    assert Gap(Level(0.8, 0.03), Level(0.82, 0.04), "accuracy", higher=True).width is None
    assert Gap(Level(0.8, 0.03), Level(0.84, 0.04), "accuracy", higher=True).width == pytest.approx(0.04)


def test_bytes_until_a_share_by_hand() -> None:
    """Half of the way from .7 to .9 is .8, first reached in the fourth round; .86, for 80%, never."""
    gap = Gap(Level(0.7), Level(0.9), "accuracy", higher=True)
    run = summary(0.79, score_by_round=[0.75, None, 0.79, 0.81, 0.79], bytes_by_round=[100, 110, 120, 130, 140])
    assert gap.bytes_until(0.5, run) == 130
    assert gap.bytes_until(0.8, run) is None
    slow = summary(0.8, score_by_round=[0.7, 0.801], bytes_by_round=[100, 150])
    assert gap.mean_bytes_until(0.5, [run, slow]) == 140
    assert gap.mean_bytes_until(0.45, [run, {**slow, "score_by_round": [0.7, 0.78]}]) is None, (
        "one seed never got there"
    )
    lower = Gap(Level(4.0), Level(2.0), "rmse", higher=False)
    assert lower.bytes_until(0.5, {"score_by_round": [3.5, 2.9], "bytes_by_round": [5, 9]}) == 9


def test_equal_means_within_twice_the_pooled_deviation() -> None:
    """Deviations of .03 and .04 pool to .0354, twice that is .0707."""
    assert equal(Level(0.80, 0.03), Level(0.87, 0.04))
    assert not equal(Level(0.80, 0.03), Level(0.88, 0.04))
    assert equal(Level(0.87, 0.04), Level(0.80, 0.03))
    assert not equal(Level(0.8), Level(0.8001))
    found = Level.of([0.7, 0.8, 0.9], "accuracy")
    assert (found.mean, found.spread) == (pytest.approx(0.8), pytest.approx(0.1))


def test_the_best_floor_and_the_best_ceiling_make_the_gap() -> None:
    rows = {
        "head-alone": [summary(0.70), summary(0.72)],
        "probe-alone": [summary(0.74), summary(0.76)],
        "central:learning_rate=0.1": [summary(0.80), summary(0.80)],
        "central:learning_rate=0.01": [summary(0.95), summary(0.95)],
        "fedavg": [summary(0.85), summary(0.85)],
    }
    gap = find_gap(rows)
    assert gap is not None
    assert (gap.floor.mean, gap.ceiling.mean) == pytest.approx((0.75, 0.95))
    assert gap.share_of(0.85) == pytest.approx(0.5)
    assert find_gap({"head-alone": rows["head-alone"], "fedavg": rows["fedavg"]}) is None
    with pytest.raises(ConfigError, match="scored by loss"):
        find_gap({**rows, "standalone": [{**summary(0.1), "score_name": "loss"}]})


def test_every_baseline_is_a_contender() -> None:
    for name in BASELINES:
        contender = parse_contender(f"{name}:learning_rate=0.5")
        run = resolve({}, [*contender.words, f"method={contender.method}"]).run
        assert contender.label == f"{name}:learning_rate=0.5"
        assert kind(contender.label) == name
        assert (run.rounds == 0) == (name in ("head-alone", "start"))
        assert run.pooled == (name == "central")
    assert expand("fedavg:codec=eden") == "fedavg:codec=eden"


def test_the_baselines_fit_what_is_compared() -> None:
    def labels(*names: str, **values: Any) -> list[str]:
        return [each.label for each in with_baselines([parse_contender(name) for name in names], values, [])]

    assert labels("fedavg") == [*added(personal=False, has_head=True), "fedavg"]
    assert "standalone" in labels("lg-fedavg")
    assert labels("fedavg", "head-alone").count("head-alone") == 1
    language = labels("fedavg", objective="language")
    assert "start" in language
    assert "head-alone" not in language


def test_a_comparison_with_a_gap_has_its_column() -> None:
    numbers = dict.fromkeys(("uplink_bpp", "downlink_bpp", "uplink_mb", "downlink_mb", "one_off_mb", "seconds"), 7.0)
    row: dict[str, Any] = {**numbers, "score": 0.5, "score_before": 0.1, "false_flips_per_upload": None}
    rows = {"fedavg": {**row, "gap_closed": 0.256}, "central": {**row, "gap_closed": 1.0}}
    table = comparison_table({"target": None, "seeds": 1, "methods": rows})
    cells = {str(column.header).replace("\n", " "): list(column.cells) for column in table.columns}
    assert cells["gap closed"] == ["26%", "100%"]
    assert cells["up MB"] == ["7.00", "-"], "training in one place sends nothing"
