"""Combinations that nobody has named are plain configuration: they run, and they learn."""

from __future__ import annotations

from typing import Any

import pytest

from subbit.core.errors import ConfigError
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings, small_vit

COMBINATIONS: dict[str, dict[str, Any]] = {
    "fedavg with AdamW": {"method": "fedavg", "optimizer": "adamw", "learning_rate": 0.01},
    "fedavg with RMSprop": {"method": "fedavg", "optimizer": "rmsprop", "learning_rate": 0.003},
    "masks, ternary changes of scores": {"method": "deltamask", "up.codec": "ternary", "learning_rate": 0.3},
    "masks, EDEN both ways": {
        "method": "fedpm",
        "codec": "eden",
        "bits": 2,
        "down_codec": "eden",
        "down_bits": 4,
        "learning_rate": 0.3,
    },
    "masks as a map of fedavg, trimmed": {
        "method": "fedavg",
        "map": "mask",
        "codec": "topk",
        "aggregator": "trimmed",
        "learning_rate": 0.3,
    },
    "projections with EDEN": {"method": "zampling", "codec": "eden", "compression": 2.0, "learning_rate": 0.1},
    "projections as a map of fedavg": {"method": "fedavg", "map": "projection", "compression": 2.0, "codec": "int8"},
    "masks of a projection": {"method": "deltamask", "map": "projection", "compression": 2.0},
    "a subspace, EDEN both ways": {
        "method": "fedavg",
        "map": "subspace",
        "dimensions": 400,
        "codec": "eden",
        "down_codec": "eden",
        "learning_rate": 0.05,
    },
    "a schedule by step": {"method": "fedavg", "schedule": "cosine", "schedule_every": "step", "learning_rate": 0.01},
}


@pytest.mark.parametrize("words", COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_it_runs_and_learns(words: dict[str, Any]) -> None:
    """Chance is 0.1."""
    summary = run_job(digits_problem(mlp(64)), settings(rounds=6, epochs=6, batch_size=16, **words)).summary
    assert summary["failed_clients"] == 0, summary["failures"]
    assert summary["accuracy"] > 0.4


def test_lora_with_error_feedback_and_a_trimmed_mean() -> None:
    words = {"tuning": "lora", "codec": "eden", "error_feedback": True, "aggregator": "trimmed", "trim": 0.2}
    summary = run_job(digits_problem(small_vit()), settings(method="fedpeft", **words)).summary
    assert summary["failed_clients"] == 0
    assert summary["uplink_bpp"] < 4  # One bit a value, and headers.


def test_one_client_that_says_everything_is_local_training_whatever_goes_up() -> None:
    """A dense change and the dense vector itself lead to the same network but for the rounding of a difference."""
    whole = run_job(digits_problem(), settings(method="fedavg", rounds=1, whole=True)).summary
    change = run_job(digits_problem(), settings(method="fedavg", rounds=1)).summary
    assert whole["accuracy"] == change["accuracy"]
    assert whole["total_bytes"] == change["total_bytes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "fedpm", "aggregator": "trimmed"}, "bits are counted"),
        ({"method": "deltamask", "down_codec": "eden"}, "probabilities go down"),
        ({"method": "fedavg", "map": "mask", "regulariser": "moon"}, "map=weights"),
        ({"method": "fedavg", "map": "mask", "privacy": "run"}, "map=weights"),
        ({"method": "lg-fedavg", "learning_rate": "auto"}, "needs a number"),
        ({"method": "fedavg", "codec": "topk", "whole": True}, "error_feedback is for changes"),
        ({"method": "fedavg", "aggregator": "beta"}, "aggregator='beta'"),
        ({"method": "fedavg", "whole": True, "clip_norm": 1.0}, "clip_norm is for changes"),
        ({"method": "fedpm", "map": "weights"}, "use map=mask"),
    ],
)
def test_pieces_that_do_not_fit_together_are_refused_before_the_first_round(
    words: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Workplace(digits_problem(), settings(**words))
