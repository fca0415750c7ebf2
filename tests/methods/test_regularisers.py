"""FedProx and MOON against hand-derived numbers and against three separate networks."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from subbit.core.errors import ConfigError, ModelError
from subbit.local.regularisers import Contrast, Moon, contrast
from subbit.methods.method import Turn
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, settings

ONE_STEP = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.5, "batch_size": 1000}


def trained(method: str, memory: dict[str, Any] | None = None, turns: int = 1, **values: Any) -> np.ndarray:
    """The change that client 0 sends in the last of so many turns, each from the same broadcast."""
    problem = digits_problem()
    made = Workplace(problem, settings(method=method, **{**ONE_STEP, **values})).method("main")
    view = made.open(made.broadcast(made.start(), 0), 0)
    memory = {} if memory is None else memory
    for number in range(turns):
        update = made.train(view, problem.client_data(0), Turn(number, 0, memory))
    change: np.ndarray = update.payloads["weights"]
    return change


def test_the_pull_of_fedprox_by_hand() -> None:
    """Two SGD steps of rate r, the first from w0 itself, where there is no pull: w1 = w0 - r g0. The second is
    w2 = w1 - r (g1 + mu (w1 - w0)), and w1 - w0 = -r g0: so FedProx ends mu r (w0 - w1) = -mu r (w1 - w0) beyond
    FedAvg, where w1 - w0 is what FedAvg sends after one step.
    """
    one, two = trained("fedavg"), trained("fedavg", epochs=2)
    pulled = trained("fedprox", epochs=2, mu=0.3)
    assert np.allclose(pulled - two, -0.3 * 0.5 * one, atol=1e-6)
    assert np.abs(pulled - two).max() > 1e-3


def test_without_weight_the_regularisers_are_fedavg() -> None:
    plain = trained("fedavg", epochs=2)
    assert np.array_equal(trained("fedprox", epochs=2, mu=0.0), plain)
    assert np.array_equal(trained("moon", epochs=2, turns=2, mu=0.0), trained("fedavg", epochs=2, turns=2))


def test_the_contrast_by_hand() -> None:
    """z = (1, 0), z_g = (2, 0), z_p = (0, 3): cosines 1 and 0. At t = 0.5 the loss is log(1 + e^-2), and with the two
    exchanged log(1 + e^2); the mean of a batch of both is the mean of the two."""
    along, across = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    features = torch.tensor([[1.0, 0.0]])
    near, far = math.log1p(math.exp(-2)), math.log1p(math.exp(2))
    assert contrast(features, along, across, 0.5).item() == pytest.approx(near)
    assert contrast(features, across, along, 0.5).item() == pytest.approx(far)
    both = contrast(features.repeat(2, 1), torch.cat([along, across]), torch.cat([across, along]), 0.5)
    assert both.item() == pytest.approx((near + far) / 2)


def test_dead_features_give_a_finite_loss() -> None:
    """All features zero, as behind a ReLU that never fires: cosines are 0 by convention, the loss is log 2."""
    features = torch.zeros(3, 4, requires_grad=True)
    loss = contrast(features, torch.ones(3, 4), torch.zeros(3, 4), 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert torch.isfinite(features.grad).all()


def test_the_first_turn_of_moon_is_fedavg_with_log_2_more_loss() -> None:
    """No last network yet, so the global one stands in for it: the two cosines are equal and so is the pull of both."""
    problem = digits_problem()
    updates = {}
    for method in ("fedavg", "moon"):
        made = Workplace(problem, settings(method=method, **ONE_STEP, **({"mu": 5.0} if method == "moon" else {})))
        main = made.method("main")
        view = main.open(main.broadcast(main.start(), 0), 0)
        updates[method] = main.train(view, problem.client_data(0), Turn(0, 0, {}))
    more = updates["moon"].observations["loss"] - updates["fedavg"].observations["loss"]
    assert more == pytest.approx(5.0 * math.log(2), rel=1e-5)
    assert np.allclose(updates["moon"].payloads["weights"], updates["fedavg"].payloads["weights"], atol=1e-6)


def test_later_turns_of_moon_differ_and_remember_the_last_network() -> None:
    memory: dict[str, Any] = {}
    first = trained("moon", memory)
    start = Workplace(digits_problem(), settings(method="moon")).method("main").start()["weights"]
    assert np.allclose(memory["previous-weights"], start + first, atol=1e-6)
    second = trained("moon", memory)
    assert np.abs(second - trained("fedavg")).max() > 1e-4


def test_where_only_the_head_is_trained_moon_has_no_effect() -> None:
    moon, plain = (trained(method, turns=3, epochs=3, select="head") for method in ("moon", "fedavg"))
    assert np.array_equal(moon, plain)


def test_the_objective_of_moon_equals_that_of_three_networks() -> None:
    """The oracle has three modules where the flat model has one, rewritten; BatchNorm makes statistics matter too."""
    module = conv_net()
    problem = digits_problem(module)
    method = Workplace(problem, settings(method="moon", batchnorm="average")).method("main")
    flat, batch = method.task.flat, problem.client_data(0)
    generator = torch.Generator().manual_seed(1)
    networks = [
        {
            "weights": (flat.weights + 0.1 * torch.randn(flat.weights.shape, generator=generator)).numpy().copy(),
            "statistics": (flat.statistics + torch.rand(flat.statistics.shape, generator=generator)).numpy().copy(),
        }
        for _ in range(2)
    ]
    flat.training_mode()
    flat.zero_gradient()
    before = flat.weights.clone()
    found = Contrast(method.task, flat.module[-1], (networks[0], networks[1]), Moon(mu=0.7, temperature=0.5))(batch)
    found.backward()
    assert torch.equal(flat.weights, before)

    features = []
    for network in networks:
        other = Workplace(digits_problem(copy.deepcopy(module)), settings(method="fedavg", batchnorm="average"))
        other.method("main").write(network)
        other.method("main").task.flat.evaluation_mode()
        with torch.no_grad():
            features.append(other.module[:-1](batch.inputs))
    own = copy.deepcopy(module).train()
    hidden = own[:-1](batch.inputs)
    cosines = torch.stack([functional.cosine_similarity(hidden, other) for other in features], dim=1)
    expected = functional.cross_entropy(own[-1](hidden), batch.labels) + 0.7 * functional.cross_entropy(
        cosines / 0.5, torch.zeros(len(batch), dtype=torch.int64)
    )
    expected.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in own.parameters()])
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(flat.gradient, gradient, atol=1e-5)
    assert torch.allclose(flat.statistics[:8], own[2].running_mean, atol=1e-5), (
        "one update of the statistics, not three"
    )


def test_partial_participation_makes_some_first_turns_late() -> None:
    summary = run_job(digits_problem(), settings(method="moon", participation=0.34, rounds=5)).summary
    assert summary["participants"] == 1
    assert summary["failed_clients"] == 0


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="mu=-1"):
        settings(method="fedprox", mu=-1.0)
    with pytest.raises(ConfigError, match="temperature=0"):
        settings(method="moon", temperature=0.0)
    with pytest.raises(ConfigError, match="regulariser='moon'"):
        settings(method="fedprox", regulariser="moon")
    headless = nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(ModelError, match="has no head"):
        Workplace(digits_problem(headless), settings(method="moon"))
