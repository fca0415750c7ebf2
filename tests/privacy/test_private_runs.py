"""Whole runs under differential privacy, and those that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError, ModelError
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import Scaled, conv_net, digits_problem, mlp, settings

PRIVATE: dict[str, Any] = {"method": "fedavg", "privacy": "run", "batch_size": 40, "optimizer": "sgd"}


def finish(module: nn.Module | None = None, **values: Any) -> dict[str, Any]:
    parts = values.pop("parts", None)
    examples = values.pop("examples", 240)
    problem = digits_problem(module, parts, examples)
    return run_job(problem, settings(clients=problem.clients, **{**PRIVATE, **values})).summary


def test_the_same_seed_gives_the_same_model_whatever_the_workers() -> None:
    one, two, other = finish(), finish(workers=2), finish(seed=1)
    assert one["model_sha256"] == two["model_sha256"] != other["model_sha256"]
    assert 0 < one["privacy"]["epsilon_spent"] <= one["privacy"]["epsilon"] == 5
    assert finish(noise_source="system")["model_sha256"] != one["model_sha256"]


@pytest.mark.parametrize(
    "values", [{"method": "fedavg"}, {"method": "fedpeft", "tuning": "full"}, {"method": "fedavg", "codec": "topk"}]
)
def test_it_learns(values: dict[str, Any]) -> None:
    """Digits at epsilon 5 over the whole run; chance is 0.1."""
    summary = finish(mlp(32), examples=1200, rounds=6, epochs=2, learning_rate=0.2, batch_size=100, **values)
    assert summary["failed_clients"] == 0, summary["failures"]
    assert summary["accuracy"] > 0.4
    assert summary["privacy"]["epsilon_spent"] <= 5


def test_small_clients_and_the_literal_form() -> None:
    parts = [np.arange(0), np.arange(1), np.arange(1, 60)]
    summary = finish(parts=parts, privacy="per-step")
    assert summary["failed_clients"] == 0
    assert "per step, not composed" in summary["privacy"]["guarantee"]
    assert summary["privacy"]["noise_multiplier"] == pytest.approx(0.7553, abs=1e-4)
    assert summary["privacy"]["epsilon"] > 5


class Poisoned(nn.Module):
    """Not a number for the first example."""

    def __init__(self) -> None:
        super().__init__()
        self.first = digits_problem().train.inputs[0].clone()

    def forward(self, images: Tensor) -> Tensor:
        hit = (images == self.first).flatten(1).all(1)
        return images.float() / 255 + torch.where(hit, torch.nan, 0.0).reshape(-1, 1, 1, 1)


def test_one_example_cannot_make_itself_known_by_failing_its_client() -> None:
    summary = finish(nn.Sequential(Poisoned(), *list(mlp())[1:]))
    assert summary["failed_clients"] == 0


def refusal(error: type[Exception], message: str, module: nn.Module | None = None, **values: Any) -> None:
    with pytest.raises(error, match=message):
        Workplace(digits_problem(module), settings(**{**PRIVATE, **values}))


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("head=probe fits the head", {"head": "probe"}),
        ("head=lda fits the head", {"head": "lda"}),
        ("selection=high-loss tells losses", {"selection": "high-loss"}),
        ("noise_source=system", {"engine": "deployment"}),
        ("unknown key 'privacy' for method 'gradmask'", {"method": "gradmask"}),
        ("moon contrasts", {"method": "moon"}),
        ("moon contrasts", {"method": "fedpeft", "tuning": "full", "regulariser": "moon"}),
    ],
)
def test_runs_for_which_it_would_be_wrong_are_refused(message: str, values: dict[str, Any]) -> None:
    refusal(ConfigError, message, **values)


@pytest.mark.parametrize("policy", ["batch", "average"])
def test_statistics_of_batches_are_refused(policy: str) -> None:
    refusal(ModelError, f"'2' is BatchNorm2d with batchnorm={policy}", conv_net(), batchnorm=policy)
    Workplace(digits_problem(conv_net()), settings(**PRIVATE))  # Frozen statistics mix nothing.


class Undecided(nn.Module):
    """A branch that depends on the data has no vectorised form."""

    def forward(self, features: Tensor) -> Tensor:
        return features if bool(features.sum() > 0) else -features


def test_a_layer_that_cannot_be_vectorised_is_named() -> None:
    module = nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(64, 16), Undecided(), nn.Linear(16, 10))
    refusal(ModelError, r"through '3' \(Undecided\)", module)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("epsilon=0", "epsilon=0.0: needs"),
        ("epsilon=nan", "epsilon=nan: needs"),
        ("epsilon=1000", "epsilon=1000.0: needs"),
        ("delta=1", "delta=1.0: needs"),
        ("max_gradient_norm=inf", "max_gradient_norm=inf: needs"),
        ("accountant=moments", "one of rdp, prv"),
    ],
)
def test_budgets_out_of_range_are_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({"method": "fedavg", "privacy": "run"}, [word])


def test_a_sigma_that_does_not_hold_its_epsilon_is_refused() -> None:
    """epsilon = 10, delta = 1e-3: sigma = 0.3777 and delta is truly Phi(-2.45) - e^10 Phi(-5.10) = 0.0034."""
    with pytest.raises(ConfigError, match=r"delta would be 0.0034 and not 0.001"):
        resolve({"method": "fedavg", "privacy": "per-step", "epsilon": 10.0})
