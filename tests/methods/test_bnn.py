"""Binarised networks under FedAvg, against hand-derived numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.codecs import Counts
from subbit.codecs.packed import pack_bits
from subbit.core.errors import ModelError
from subbit.methods.method import Turn
from subbit.models import FlatModel
from subbit.models.binary import BinaryActivation, BinaryWeights
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import conv_net, digits_problem, mlp, settings

WEIGHTS, REAL = 64 * 16, 16 + 160 + 10
"""Of the 64-16-10 network: binarised weights of the first layer; its bias and the head."""


def bnn(module: nn.Module | None = None, **values: Any) -> Any:
    return Workplace(digits_problem(module), settings(method="bnn", **values)).method("main")


def test_binary_weights_by_hand() -> None:
    """Scale 1/2 on the first three places, the last one is real. Beyond |s| = 1 no gradient comes back."""
    weights = BinaryWeights(torch.tensor([True, True, True, False]), torch.full((4,), 0.5))
    trained, out = torch.tensor([0.3, -2.0, 0.0, 0.7]), torch.zeros(4)
    weights.write(trained, out, 0)
    assert out.tolist() == pytest.approx([0.5, -0.5, 0.5, 0.7])
    weights.pull_back(torch.ones(4), trained, out)
    assert out.tolist() == pytest.approx([0.5, 0.0, 0.5, 1.0])
    assert weights.clip_(torch.tensor([0.3, -2.0, 1.5, 1.7])).tolist() == pytest.approx([0.3, -1.0, 1.0, 1.7])


def test_binary_activations_by_hand() -> None:
    inputs = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], requires_grad=True)
    outputs = BinaryActivation()(inputs)
    outputs.sum().backward()
    assert outputs.tolist() == [-1, -1, 1, 1, 1]
    assert inputs.grad.tolist() == [0, 1, 1, 1, 0]


def test_weights_outside_the_head_are_binarised_and_nothing_else() -> None:
    method = bnn(conv_net(), batchnorm="average")
    real = 8 + 8 + 8 + 1280 + 10 + 16  # Bias, norm, head, running statistics.
    assert (method.map.signs, method.map.real) == (8 * 9, real)
    assert [part.size for part in method.up_parts()] == [72, real]


def test_the_network_is_the_mean_size_of_each_tensor_times_a_sign() -> None:
    method = bnn()
    first = FlatModel(mlp(), "2.weight").weights
    method.write_network(method.start(), "binary", 0)
    written = method.task.flat.weights[:WEIGHTS]
    assert torch.allclose(written, first.sign() * first.abs().mean(), atol=1e-6)
    ones = bnn(scale="one")
    ones.write_network(ones.start(), "binary", 0)
    assert torch.equal(ones.task.flat.weights[:WEIGHTS], first.sign())


def test_latent_values_by_policy() -> None:
    """Two of three clients say +1 everywhere: s = 1/3. Own values 0.9 and -0.2: overwritten, both are 1/3; kept where
    the sign is the same, 0.9 stays and -0.2 does not."""
    view = {"signs": Counts(3, np.full(WEIGHTS, 2, dtype=np.uint16)), "real": np.zeros(REAL, dtype=np.float32)}
    own = np.full(WEIGHTS, 0.9, dtype=np.float32)
    own[1::2] = -0.2
    method = bnn()
    assert method.received(view, Turn(1, 0, {}))[:2].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert method.received(view, Turn(1, 0, {"latents": own}))[:2].tolist() == pytest.approx([0.9, 1 / 3])

    view = method.open(method.broadcast(method.start(), 0), 0)
    for policy, kept in (("overwrite", []), ("keep_local_if_same_sign", ["latents"])):
        memory: dict[str, Any] = {}
        bnn(latent_policy=policy).train(view, digits_problem().client_data(0), Turn(0, 0, memory))
        assert list(memory) == kept


def test_the_step_counts_signs_and_averages_the_rest_by_examples() -> None:
    """Signs (+, -) and (+, +), ties being +: counts 2 and 1 of 2. Real changes +1 (1 example), -1 (3): -0.5."""
    method = bnn()
    accumulator = method.accumulator()
    plus, alternating = np.ones(WEIGHTS, dtype=bool), np.arange(WEIGHTS) % 2 == 0
    for signs, change, examples in ((alternating, 1.0, 1), (plus, -1.0, 3)):
        payloads = {"signs": pack_bits(signs), "real": np.full(REAL, change, dtype=np.float32)}
        method.accumulate(accumulator, None, payloads, examples, 0, 0)
    state = method.step(method.start(), accumulator, 0)
    assert state["counts"][:2].tolist() == [2, 1]
    assert state["total"] == 2
    assert np.allclose(state["real"], method.start()["real"] - 0.5, atol=1e-6)
    majority = bnn(broadcast="sign").broadcast(state, 1)["signs"]
    assert (majority.total, majority.values[:2].tolist()) == (1, [1, 1])
    method.write_network(state, "mean", 0)
    scale = float(FlatModel(mlp(), "2.weight").weights.abs().mean())
    assert method.task.flat.weights[:2].tolist() == pytest.approx([scale, 0.0])


def test_a_packed_upload_is_one_bit_per_sign_and_four_bytes_for_the_rest() -> None:
    summary = run_job(digits_problem(), settings(method="bnn", codec="packed", rounds=1)).summary
    assert summary["uplink_bytes"] == 3 * (WEIGHTS // 8 + 4 * REAL + 2 * HEADER_BYTES)


def test_signs_turn_and_stay_signs() -> None:
    module = run_job(digits_problem(), settings(method="bnn", epochs=3)).module
    before, after = FlatModel(mlp(), "2.weight").weights, FlatModel(module, "2.weight").weights
    assert torch.allclose(after.abs(), before.abs().mean().expand_as(after), atol=1e-6)
    assert 0 < int((after.sign() != before.sign()).sum()) < WEIGHTS


def test_the_users_module_keeps_its_activations() -> None:
    module = mlp()
    trained = run_job(digits_problem(module), settings(method="bnn", activations="binary", rounds=1)).module
    assert isinstance(module[3], nn.ReLU)
    assert isinstance(trained[3], BinaryActivation)


def test_refusals() -> None:
    with pytest.raises(ModelError, match="nothing to binarise"):
        bnn(select="head")
    with pytest.raises(ModelError, match="has no activations that are modules"):
        bnn(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), activations="binary")
