"""FedPEFT is FedAvg on what its tuning trains: against FedAvg itself, with every tuning, compressor, kind of input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subbit.config.resolve import resolve, write_toml
from subbit.core.errors import ConfigError
from subbit.local.optimizers import Sgd
from subbit.methods.fedpeft import FedPeft, FedPeftParameters
from subbit.peft import TUNINGS
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings, small_vit


def finish(module: nn.Module, **values: Any) -> dict[str, Any]:
    return run_job(digits_problem(module, examples=60), settings(batch_size=16, rounds=1, **values)).summary


@pytest.mark.parametrize(
    ("tuning", "selection"), [("full", "all"), ("head", "head"), ("bias", "*bias + head")], ids=["full", "head", "bias"]
)
def test_without_added_modules_it_is_fedavg_of_a_selection(tuning: str, selection: str) -> None:
    ours = finish(small_vit(), method="fedpeft", tuning=tuning)
    rate = settings(method="fedpeft", tuning=tuning).parameters.local.learning_rate
    theirs = finish(small_vit(), method="fedavg", select=selection, learning_rate=rate)
    assert ours["model_sha256"] == theirs["model_sha256"]
    assert ours["total_bytes"] == theirs["total_bytes"]


@pytest.mark.parametrize("tuning", list(TUNINGS))
def test_every_tuning_goes_up_at_one_bit(tuning: str) -> None:
    """32 bits become 1, beside the frame's header and the rotation's norms."""
    module = small_vit()
    plain = finish(module, method="fedpeft", tuning=tuning)
    small = finish(module, method="fedpeft", tuning=tuning, codec="eden", bits=1.0)
    assert plain["parameters"] == small["parameters"]
    assert plain["failed_clients"] == small["failed_clients"] == 0
    saved = (plain["uplink_bytes"] - small["uplink_bytes"]) / 3
    assert saved >= 4 * plain["parameters"] - plain["parameters"] / 8 - 32
    assert plain["model_sha256"] != small["model_sha256"]


def test_workers_and_added_modules() -> None:
    module = small_vit()
    alone, several = (finish(module, method="fedpeft", tuning="adapter", workers=workers) for workers in (1, 2))
    assert alone["model_sha256"] == several["model_sha256"]


def test_the_users_module_stays_as_it_is() -> None:
    module = small_vit()
    names = [name for name, _ in module.named_parameters()]
    values = nn.utils.parameters_to_vector(module.parameters()).clone()
    finish(module, method="fedpeft", tuning="adapter")
    assert [name for name, _ in module.named_parameters()] == names
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), values)


def test_learning_rates_of_the_paper() -> None:
    expected = {"full": 0.001, "head": 0.005, "bias": 0.01, "adapter": 0.005, "prompt": 0.01}
    for tuning, rate in expected.items():
        found = settings(method="fedpeft", preset="paper", tuning=tuning).parameters.local
        assert (found.learning_rate, found.optimizer) == (rate, Sgd(momentum=0.0, weight_decay=1e-4))
        assert (found.epochs, found.batch_size) == (10, 64)
    own = settings(method="fedpeft", preset="paper", tuning="bias", learning_rate=0.3, momentum=0.9).parameters.local
    assert (own.learning_rate, own.optimizer) == (0.3, Sgd(momentum=0.9, weight_decay=1e-4))


def test_the_rate_that_was_used_is_written_down() -> None:
    import tomllib

    chosen = settings(method="fedpeft", tuning="prompt", preset="paper")
    written = tomllib.loads(write_toml(chosen))
    assert written["fedpeft"]["local"]["learning_rate"] == 0.01
    assert resolve(written) == chosen


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tuning": "promt"}, "did you mean 'prompt'"),
        ({"learning_rate": "fast"}, "needs a number or one of auto, paper"),
        ({"learning_rate": -1.0}, "needs a number from 0 up"),
        ({"tuning": "adapter", "bottleneck": 0}, "bottleneck=0: needs at least 1"),
        ({"tuning": "prompt", "prompt_tokens": 0}, "prompt_tokens=0: needs at least 1"),
        ({"tuning": "lora", "lora_rank": 0}, "lora_rank=0: needs at least 1"),
    ],
)
def test_values_out_of_range(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(method="fedpeft", **values)


def test_a_selection_of_the_users_own_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave select=auto"):
        Workplace(digits_problem(), settings(method="fedpeft", select="all"))
    assert FedPeft.trains_weights(FedPeftParameters())
