"""A subspace of the weights: what a value moves, by how much, and the gradient back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.problems import conv_net, digits_problem, mlp, settings, small_vit
from torch import nn

from subbit.maps.layer_scales import layer_scales
from subbit.maps.spans import Span
from subbit.maps.subspace import Subspace, SubspaceMap
from subbit.models.device_projection import DeviceProjection
from subbit.models.sparse_matrix import SignProjection
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace


def bound(module: nn.Module | None = None, **words: Any) -> Subspace:
    chosen = settings(method="fedavg", map="subspace", select="all", **words)
    method = Workplace(digits_problem(module or mlp(16)), chosen).method("main")
    assert isinstance(method.map, Subspace)
    return method.map


@given(rows=st.integers(1, 300), columns=st.integers(1, 40), key=st.integers(0, 2**64 - 1))
def test_columns_are_orthogonal_and_every_row_has_one_entry(rows: int, columns: int, key: int) -> None:
    scales = np.linspace(0.5, 2, rows).astype(np.float32)
    matrix = SignProjection(scales, columns, key).dense()
    assert (np.count_nonzero(matrix, axis=1) == 1).all()
    np.testing.assert_array_equal(np.abs(matrix).sum(axis=1), scales)
    products = matrix.T @ matrix
    np.testing.assert_array_equal(products, np.diag(np.diag(products)))


def test_on_another_device_it_is_the_same() -> None:
    projection = SignProjection(np.linspace(0.1, 2, 5_000), 100, 2**63 + 5)
    plain, values = DeviceProjection(projection, torch.device("cpu")), torch.randn(100)
    one, other = torch.empty(5_000), torch.empty(5_000)
    projection.multiply(values.numpy(), one.numpy())
    plain.multiply(values, other)
    assert torch.equal(one, other)


@pytest.mark.parametrize("module", [mlp, conv_net, small_vit])
def test_zero_is_the_start_bit_for_bit(module: Any) -> None:
    found = bound(module())
    weights = torch.full_like(found.task.flat.weights, torch.nan)
    found.network.write(torch.from_numpy(found.start()), weights, 0)
    assert torch.equal(weights, found.task.flat.initial)


@pytest.mark.parametrize("words", [{}, {"head_dimensions": 20}, {"dimensions": 10**6, "head_dimensions": 10**6}])
def test_the_gradient_is_that_of_the_map(words: dict[str, Any]) -> None:
    """The map is linear, so <P z, g> = <z, P' g> for every z and g."""
    found = bound(dimensions=words.pop("dimensions", 50), **words)
    trained, gradient = torch.randn(found.size), torch.randn(found.task.flat.template.size)
    weights, back = torch.empty_like(gradient), torch.empty_like(trained)
    found.network.write(trained, weights, 0)
    found.network.pull_back(gradient, trained, back)
    moved = weights.double() - found.task.flat.initial.double()
    torch.testing.assert_close(moved @ gradient.double(), trained.double() @ back.double(), rtol=1e-4, atol=1e-4)


def test_a_unit_moves_every_weight_by_the_root_mean_square_of_its_layer() -> None:
    found = bound(dimensions=7)
    flat = found.task.flat
    weights = torch.empty_like(flat.weights)
    found.network.write(torch.ones(found.size), weights, 0)
    matrix, moved = (flat.template.views(vector)[0] for vector in (flat.initial, (weights - flat.initial).abs()))
    scale = matrix.double().square().mean().sqrt().float()
    torch.testing.assert_close(moved, scale.expand_as(moved), rtol=1e-4, atol=1e-6)


def test_biases_of_zero_move_as_their_matrix_does() -> None:
    module = mlp(16)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    task = bound(module).task
    names, offsets = task.flat.template.names, task.flat.template.offsets
    scales = dict(zip(names, layer_scales(task)[list(offsets)], strict=True))
    assert all(scales[name] == scales[name.replace("bias", "weight")] > 0 for name in names if name.endswith("bias"))


def test_values_of_head_and_body() -> None:
    """An MLP of 64, 16 and 10 has 64 * 16 + 16 = 1,040 weights and a head of 16 * 10 + 10 = 170."""
    assert bound(dimensions=50).size == 50 + 170
    assert bound(dimensions=50, head_dimensions=20).size == 50 + 20
    assert bound(dimensions=2_000).size == 1_040 + 170


def test_the_seed_draws_the_subspace() -> None:
    names = {bound(seed=seed).vector for seed in range(3)}
    assert len(names) == 3
    assert bound(seed=1).vector in names


def test_runs_are_joined() -> None:
    span = Span()
    for run in (slice(0, 3), slice(3, 5), slice(7, 9)):
        span.append(run)
    assert (span.runs, span.count) == ([slice(0, 5), slice(7, 9)], 7)


@pytest.mark.parametrize("words", [{}, {"codec": "eden", "down_codec": "eden", "server_momentum": 0.7}])
def test_it_learns_in_few_bytes(words: dict[str, Any]) -> None:
    chosen = settings(
        method="fedavg", map="subspace", select="all", dimensions=200, learning_rate=0.05, rounds=8, epochs=4, **words
    )
    summary = run_job(digits_problem(mlp(64)), chosen).summary
    assert summary["failed_clients"] == 0
    assert summary["accuracy"] > summary["accuracy_before"] + 0.2
    assert summary["uplink_bpp"] < 12


def test_the_head_is_sent_where_a_broadcast_is_a_distance_from_it() -> None:
    """With a whole broadcast, too: the values say nothing without the start."""
    words = {"method": "fedavg", "map": "subspace", "select": "all", "head": "lda", "rounds": 1, "learning_rate": 0.0}
    summary = run_job(digits_problem(), settings(**words)).summary
    assert summary["one_off_bytes"] > 0
    assert summary["accuracy"] == summary["accuracy_before"]


def test_the_defaults() -> None:
    assert (SubspaceMap().dimensions, SubspaceMap().head_dimensions) == (2048, 1024)
