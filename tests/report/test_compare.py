"""How a comparison is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError
from subbit.report.compare import compare, parse_contender, score_cell


def test_one_seed_has_no_standard_deviation() -> None:
    row = {"accuracy": 0.50049, "accuracy_spread": 0.25}
    assert score_cell(row, seeds=2, digits=3) == "0.500 ± 0.250"
    assert score_cell({**row, "accuracy_spread": 0.0}, seeds=1, digits=4) == "0.5005"


SUMMARY: dict[str, Any] = dict.fromkeys(
    ("score", "score_before", "uplink_bpp", "downlink_bpp", "uplink_bytes", "downlink_bytes", "one_off_bytes"),
    1.0,
) | {"seconds": 1.0, "parameters": 1, "failed_clients": 0, "score_name": "accuracy"}


def compared(contenders: list[str], words: list[str], seeds: int = 1, **values: Any) -> list[Settings]:
    """The settings of all runs, in their order."""
    ran: list[Settings] = []

    def run(settings: Settings) -> dict[str, Any]:
        ran.append(settings)
        return SUMMARY

    compare([parse_contender(each) for each in contenders], values, words, seeds, None, run)
    return ran


def test_seeds_count_from_the_one_that_is_given() -> None:
    assert [each.run.seed for each in compared(["fedavg"], [])] == [0]
    assert [each.run.seed for each in compared(["fedavg"], ["seed=5"])] == [5]
    assert [each.run.seed for each in compared(["fedavg"], ["seed=5"], seeds=2, seed=3)] == [5, 6]
    ran = compared(["fedavg", "fedavg:seed=9"], ["seed=5"])
    assert [each.run.seed for each in ran] == [5, 9]
    assert [each.run.name for each in ran] == ["fedavg-seed5", "fedavg_seed_9-seed9"]


@pytest.mark.parametrize("word", ["name=mine", "method=fedpm", "run.name=mine"])
def test_names_and_methods_are_not_words_of_a_comparison(word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word}: a comparison names"):
        compared(["fedavg"], [word])
    with pytest.raises(ConfigError, match=f"{word}: a comparison names"):
        compared([f"fedavg:{word}"], [])
    assert compared(["fedavg"], [], name="demo", method="fedpm")[0].run.method == "fedavg"  # In the file of a job.


def test_a_value_may_be_a_pair() -> None:
    (settings,) = compared(["fedavg:optimizer=adam,betas=0.8,0.9,epochs=2"], [])
    assert settings.parameters.local.optimizer.betas == (0.8, 0.9)
    assert settings.parameters.local.epochs == 2
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_contender("fedavg:adam")


def test_keys_that_a_method_does_not_have_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "subbit"):
        compared(["fedavg", "deltamask"], ["kappa=0.5", "weighting=clients"], seeds=2)
    assert [record.getMessage() for record in caplog.records] == [
        "fedavg does not have kappa: left out there",
        "deltamask does not have weighting: left out there",
    ]
    with pytest.raises(ConfigError, match="'deltamask' has no privacy"):
        compared(["fedavg", "deltamask"], ["privacy=run"])


def test_a_comparison_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no method"):
        compared([], ["rounds=3"])


def test_everything_is_tried_before_the_first_run() -> None:
    tried: list[str] = []

    def refuse(settings: Settings) -> None:
        tried.append(settings.run.name)
        if settings.run.method == "fedpm":
            raise ConfigError("not this one")

    def run(settings: Settings) -> dict[str, Any]:
        raise AssertionError("ran")

    contenders = [parse_contender(name) for name in ("fedavg", "fedpm")]
    with pytest.raises(ConfigError, match="not this one"):
        compare(contenders, {}, [], 2, None, run, refuse)
    assert tried == ["fedavg-seed0", "fedpm-seed0"]
