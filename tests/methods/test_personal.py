"""standalone, per-fedavg and lg-fedavg: networks of the clients' own, against hand-derived numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subbit.core.errors import ConfigError
from subbit.data import Examples
from subbit.methods.lg_fedavg import last_layers
from subbit.methods.method import Turn
from subbit.methods.per_fedavg import halves
from subbit.models import FlatModel
from subbit.runtime.problem import Problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, mlp, settings


class OneWeight(nn.Module):
    """Logits (w x, 0): for label 0 the loss is log(1 + e^-wx), its derivative -x / (1 + e^wx)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs * self.weight, torch.zeros_like(inputs)], dim=1)


def examples(*inputs: float) -> Examples:
    return Examples(torch.tensor(inputs)[:, None], torch.zeros(len(inputs), dtype=torch.int64))


def one_weight(*inputs: float, **values: Any) -> Any:
    data = examples(*inputs)
    parts = (np.arange(len(data)),)
    problem = Problem(OneWeight(), data, parts, data, 2, False, "test", "test")
    return Workplace(problem, settings(method="per-fedavg", clients=1, **values)).method("main")


# Per-FedAvg.


def test_a_step_of_per_fedavg_by_hand() -> None:
    """From w = 0, a = 1: the first half has x = 1, g = -1/2, so w' = 1/2. The second has x = 2, and its gradient at
    w' is -2 / (1 + e^1); at w = 0 it would have been -1."""
    method = one_weight(1, 1, 2, 2, learning_rate=1.0)
    loss = method._gradient_after_a_step(examples(1, 1, 2, 2))
    assert method.task.flat.gradient.item() == pytest.approx(-2 / (1 + math.e))
    assert loss == pytest.approx(math.log1p(math.exp(-1)))


def test_a_turn_and_the_adaptation_of_per_fedavg_by_hand() -> None:
    """Four examples x = 1, one step: w' = a/2 and w = b / (1 + e^(a/2)). In use: one step of size a/2 from w = 0."""
    method = one_weight(1, 1, 1, 1, learning_rate=0.8, inner_learning_rate=0.6)
    view = {"weights": np.zeros(1, dtype=np.float32)}
    update = method.train(view, examples(1, 1, 1, 1), Turn(0, 0, {}))
    assert update.payloads["weights"][0] == pytest.approx(0.8 / (1 + math.exp(0.3)))
    method.personalise(view, examples(1, 1, 1, 1), Turn(0, 0, {}))
    assert method.task.flat.weights.item() == pytest.approx(0.3)


def test_an_epoch_of_adaptation_takes_all_batches() -> None:
    """Four examples x = 1 in batches of two: w = 1/2 after the first step, then 1/2 + 1 / (1 + e^1/2)."""
    steps = {how: one_weight(1, 1, 1, 1, learning_rate=1.0, batch_size=2, adaptation=how) for how in ("step", "epoch")}
    for method in steps.values():
        method.personalise({"weights": np.zeros(1, dtype=np.float32)}, examples(1, 1, 1, 1), Turn(0, 0, {}))
    assert steps["step"].task.flat.weights.item() == pytest.approx(0.5)
    assert steps["epoch"].task.flat.weights.item() == pytest.approx(0.5 + 1 / (1 + math.exp(0.5)))


@pytest.mark.parametrize("count", range(1, 9))
def test_no_half_is_empty_or_single_and_no_example_is_lost(count: int) -> None:
    batch = examples(*range(count))
    first, second = halves(batch)
    assert min(len(first), len(second)) >= min(count, 2)
    assert set(first.inputs.flatten().tolist()) | set(second.inputs.flatten().tolist()) == set(range(count))


def test_running_statistics_move_once_a_step() -> None:
    """One batch of all examples: momentum 0.1 moves a mean of zero to a tenth of the batch's. Moved by both halves it
    would be 0.1 m2 + 0.09 m1; by the second alone, 0.1 m2."""
    problem = digits_problem(conv_net())
    chosen = settings(method="per-fedavg", batchnorm="average", batch_size=1000, inner_learning_rate=0.0)
    method = Workplace(problem, chosen).method("main")
    method.task.flat.training_mode()
    batch = problem.client_data(0)
    method._gradient_after_a_step(batch)
    second = halves(batch)[1]
    module = method.task.flat.module
    with torch.no_grad():
        expected = 0.1 * module[1](module[0](second.inputs)).mean((0, 2, 3))
    assert torch.allclose(method.task.flat.statistics[:8], expected, atol=1e-6)


# LG-FedAvg.


def test_the_last_layers_by_name() -> None:
    """64-16-10: one layer is the head, 160 + 10 values at the end; two layers are everything."""
    flat = FlatModel(mlp(), "all")
    assert np.array_equal(np.flatnonzero(last_layers(flat, 1)), np.arange(64 * 16 + 16, flat.template.size))
    assert last_layers(flat, 2).all()
    assert last_layers(flat, 9).all()


def test_the_head_is_the_last_layer_wherever_it_is_defined() -> None:
    module = nn.ModuleDict(
        {"head": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), "low": nn.Linear(4, 3), "high": nn.Linear(3, 3)}
    )
    flat = FlatModel(module, "all")
    names = np.repeat(flat.template.names, flat.template.counts)
    owners = [{name.split(".")[0] for name in names[last_layers(flat, count)]} for count in (1, 2, 3)]
    assert owners == [{"head"}, {"head", "high"}, {"head", "high", "low"}]


def test_lower_layers_stay_and_last_layers_travel() -> None:
    problem = digits_problem()
    method = Workplace(problem, settings(method="lg-fedavg", global_layers=1)).method("main")
    assert method.up_parts()[0].size == method.down_parts()[0].size == 170
    start = method.task.flat.initial.numpy().copy()
    view = method.open(method.broadcast(method.start(), 0), 0)
    memory: dict[str, Any] = {}
    update = method.train(view, problem.client_data(0), Turn(0, 0, memory))
    lower = memory["lower"].copy()
    assert update.payloads["weights"].shape == (170,)
    assert np.abs(lower - start[:-170]).max() > 1e-4

    received = {"weights": np.full(170, 0.25, dtype=np.float32)}
    method.personalise(received, problem.client_data(0), Turn(3, 0, memory))
    written = method.task.flat.weights.numpy()
    assert np.array_equal(written[:-170], lower)
    assert (written[-170:] == 0.25).all()
    assert np.array_equal(memory["lower"], lower)
    method.personalise(received, problem.client_data(1), Turn(3, 1, {}))
    assert np.array_equal(method.task.flat.weights.numpy()[:-170], start[:-170]), "a newcomer has everybody's start"


def test_with_every_layer_common_lg_fedavg_is_fedavg() -> None:
    values = {"participation": 0.67, "rounds": 3}
    common = run_job(digits_problem(), settings(method="lg-fedavg", global_layers=2, **values)).summary
    fedavg = run_job(digits_problem(), settings(method="fedavg", evaluate="personal", **values)).summary
    assert common["model_sha256"] == fedavg["model_sha256"]
    assert common["accuracy"] == fedavg["accuracy"]


def test_uniform_weighting() -> None:
    """Changes +1 (1 example) and -1 (3 examples): -0.5 by examples, 0 alike."""
    for weighting, expected in (("examples", -0.5), ("clients", 0.0)):
        method = Workplace(digits_problem(), settings(method="lg-fedavg", weighting=weighting)).method("main")
        accumulator, ones = method.accumulator(), np.ones(method.size, dtype=np.float32)
        method.accumulate(accumulator, None, {"weights": ones}, 1, 0, 0)
        method.accumulate(accumulator, None, {"weights": -ones}, 3, 0, 1)
        moved = method.step(method.start(), accumulator, 0)["weights"] - method.start()["weights"]
        assert np.allclose(moved, expected, atol=1e-6)


def test_a_biased_codec_keeps_a_residual_of_the_common_layers() -> None:
    chosen = settings(method="lg-fedavg", global_layers=1, codec="topk", rounds=3)
    assert run_job(digits_problem(), chosen).summary["failed_clients"] == 0


# Standalone.


def test_standalone_is_fedavg_with_one_client() -> None:
    """Client 0 alone in a federation draws the same batches, and a mean of one is that one."""
    problem = digits_problem()
    alone = digits_problem(parts=[problem.parts[0]])
    fedavg = run_job(alone, settings(method="fedavg", clients=1, rounds=3)).module
    method = Workplace(problem, settings(method="standalone")).method("main")
    memory: dict[str, Any] = {}
    for number in range(3):
        method.train(None, problem.client_data(0), Turn(number, 0, memory))
        method.train(None, problem.client_data(1), Turn(number, 1, {}))  # Leaves no trace in the first client's.
    assert np.allclose(memory["weights"], FlatModel(fedavg, "all").weights.numpy(), atol=1e-6)


def test_standalone_keeps_its_own_running_statistics() -> None:
    problem = digits_problem(conv_net())
    method = Workplace(problem, settings(method="standalone", batchnorm="average")).method("main")
    first: dict[str, Any] = {}
    method.train(None, problem.client_data(0), Turn(0, 0, first))
    second: dict[str, Any] = {}
    method.train(None, problem.client_data(0), Turn(0, 0, second))
    assert np.array_equal(first["statistics"], second["statistics"]), "both started from the module's own"
    method.personalise(None, problem.client_data(0), Turn(1, 0, first))
    assert np.array_equal(method.task.flat.statistics.numpy(), first["statistics"])


def test_nothing_is_sent_but_the_fitted_head_once() -> None:
    """Without training, every client's network is the module with the fitted head, so accuracy stays as it was."""
    chosen = settings(method="standalone", head="lda", learning_rate=0.0, optimizer="sgd", rounds=3, participation=0.67)
    summary = run_job(digits_problem(mlp(64)), chosen).summary
    assert summary["uplink_bytes"] == summary["downlink_bytes"] == 0
    assert summary["uplink_bpp"] == summary["downlink_bpp"] == 0
    assert summary["one_off_bytes"] > 0
    assert summary["accuracy"] == summary["accuracy_before"] > 0.3


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="global_layers=0"):
        settings(method="lg-fedavg", global_layers=0)
    with pytest.raises(ConfigError, match="inner_learning_rate=-1"):
        settings(method="per-fedavg", inner_learning_rate=-1.0)
