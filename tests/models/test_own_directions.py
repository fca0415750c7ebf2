"""Mixing a layer's main inputs: by hand, its gradient, and that machines agree on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.problems import conv_net, digits_problem, mlp, settings, small_vit
from torch import Tensor, nn

from subbit.maps.spans import most_values
from subbit.maps.subspace import Subspace
from subbit.models.own_directions import (
    MOST_DIRECTIONS,
    Mixing,
    dominant_inputs,
    find_directions,
    place_mixing,
    share_values,
)
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace


def bound(module: nn.Module | None = None, **words: Any) -> Subspace:
    words = {"select": "all", "basis": "own", **words}
    method = Workplace(digits_problem(module or mlp(16)), settings(method="fedavg", map="subspace", **words)).method(
        "main"
    )
    assert isinstance(method.map, Subspace)
    return method.map


def mixing(matrix: Tensor, count: int, key: int = 1) -> Mixing:
    places = np.array([(i, j) for i in range(count) for j in range(count)])
    return place_mixing(slice(0, matrix.numel()), slice(0, count**2), find_directions(matrix, count, key), places)


def moved(matrix: Tensor, values: Tensor, count: int, key: int = 1) -> Tensor:
    out = matrix.flatten().clone()
    mixing(matrix, count, key).add(values, out)
    return out.view_as(matrix)


def test_by_hand() -> None:
    """A matrix of rank one uses one input: a value of 0.5 makes it half as large again, and there is no second one."""
    matrix = torch.outer(torch.tensor([2.0, -1.0]), torch.tensor([0.6, 0.0, 0.8]))
    torch.testing.assert_close(moved(matrix, torch.tensor([0.5]), 1), 1.5 * matrix)


def test_all_directions_reach_every_product_from_the_right() -> None:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(5, 4, generator=generator)
    basis = torch.from_numpy(dominant_inputs(matrix.numpy(), 4, 1)[1])
    torch.testing.assert_close(basis @ basis.T, torch.eye(4), atol=1e-6, rtol=0)
    factor = torch.randn(4, 4, generator=generator)
    values = basis @ (factor - torch.eye(4)) @ basis.T
    torch.testing.assert_close(moved(matrix, values.flatten(), 4), matrix @ factor, atol=1e-5, rtol=0)


def test_it_finds_the_inputs_that_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(size, 6, generator=generator))[0] for size in (40, 30))
    matrix = left @ torch.diag(torch.tensor([9.0, 8.0, 7.0, 1.0, 0.9, 0.8])) @ right.T
    found = torch.from_numpy(dominant_inputs(matrix.numpy(), 3, 7)[1])
    assert float((found @ right[:, :3]).square().sum()) > 2.99, "of 3: the first three span the same space"


@given(seed=st.integers(0, 2**32), count=st.integers(1, 6))
def test_the_gradient_is_the_transpose(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix, slope = torch.randn(8, 3, 2, generator=generator), torch.randn(48, generator=generator)
    piece, values = mixing(matrix, count), torch.randn(count**2, generator=generator)
    change, back = torch.zeros(48), torch.zeros(count**2)
    piece.add(values, change)
    piece.pull_back(slope, back)
    assert float(change @ slope) == pytest.approx(float(values @ back), rel=1e-3, abs=1e-3)


def test_evened_directions_move_weak_responses_further() -> None:
    """Norms 4 and 1: a usual one is sqrt(8.5), and the lengths become the geometric means with it."""
    matrix = torch.diag(torch.tensor([4.0, 1.0]))
    found = find_directions(matrix, 2, 1)
    usual = 8.5**0.5
    assert found.norms.tolist() == pytest.approx([4, 1], rel=1e-2), "two steps of power iteration"
    assert found.evened().left.norm(dim=0).tolist() == pytest.approx(
        [(norm * usual) ** 0.5 for norm in found.norms.tolist()], rel=1e-5
    )
    torch.testing.assert_close(found.evened().right, found.right)


def test_rounding_of_another_machine_changes_next_to_nothing() -> None:
    """Equal singular values leave singular vectors open; here they are found from a start that all machines share."""
    generator = torch.Generator().manual_seed(5)
    matrix = torch.linalg.qr(torch.randn(24, 24, generator=generator))[0]
    values = torch.randn(9, generator=generator)
    other = matrix + 1e-6 * torch.randn(24, 24, generator=generator)
    assert float((moved(matrix, values, 3) - moved(other, values, 3)).abs().max()) < 1e-4


@given(most=st.lists(st.integers(0, 9), min_size=1, max_size=6), values=st.integers(0, 500))
def test_values_go_to_the_first_directions(most: list[int], values: int) -> None:
    shared = share_values(most, values)
    assert sum(len(places) for places in shared) == min(values, sum(each**2 for each in most))
    ranks = [int(places.max()) + 1 if len(places) else 0 for places in shared]
    for each, places, rank in zip(most, shared, ranks, strict=True):
        assert rank <= each
        assert len({(i, j) for i, j in places.tolist()}) == len(places)
        assert rank >= min(each, max(ranks) - 1), "no matrix has a second direction before all have the first"


@pytest.mark.parametrize("module", [mlp(16), conv_net(), small_vit(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10))])
def test_a_budget_of_values_is_met_and_zero_is_the_start(module: nn.Module) -> None:
    mapped = bound(module, dimensions=50, head_dimensions=30)
    body, head = most_values(mapped.task, "own")
    assert mapped.size == min(body, 50) + min(head, 30)
    mapped.write(mapped.start(), "trained", 0)
    torch.testing.assert_close(mapped.task.flat.weights, mapped.task.flat.initial, rtol=0, atol=0)


def test_wide_layers_have_a_largest_number_of_directions() -> None:
    width = MOST_DIRECTIONS + 5
    wide = nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    assert most_values(bound(wide).task, "own")[0] == 64**2 + MOST_DIRECTIONS**2 + 2 * width, "and biases"


def test_a_quarter_of_the_values_moves_biases_and_norms_and_more_where_there_are_no_matrices() -> None:
    mapped = bound(small_vit(), dimensions=40)
    vector = np.zeros(mapped.size, np.float32)
    vector[30:40] = 0.1
    mapped.write(vector, "trained", 0)
    flat = mapped.task.flat
    moved = [
        name
        for name, now, then in zip(
            flat.template.names, flat.template.views(flat.weights), flat.template.views(flat.initial), strict=True
        )
        if not torch.equal(now, then)
    ]
    assert moved
    assert all("norm" in name or name.endswith("bias") for name in moved)
    assert bound(small_vit(), select="backbone: biases", dimensions=40).size == 40


def test_the_two_bases_are_different_vectors_on_the_wire() -> None:
    assert bound().vector != bound(basis="random").vector


def test_short_biases_share_more_values_than_they_have_weights() -> None:
    """Every bias and norm of the transformer is shorter than the 100 values that all of them share."""
    mapped = bound(small_vit(), dimensions=400)
    mapped.write(np.full(mapped.size, 0.1, np.float32), "trained", 0)
    assert bool(torch.isfinite(mapped.task.flat.weights).all())


def test_it_learns_without_a_byte_more() -> None:
    chosen = settings(method="subbit", basis="own", rounds=6, learning_rate=0.03, head="keep")
    summary = run_job(digits_problem(mlp(32)), chosen).summary
    assert summary["score"] > summary["score_before"] + 0.2


def test_a_matrix_of_zeros_moves_too() -> None:
    """W0 (1 + V R V') would stay zero for ever: its weights move like biases, which share values."""
    module = mlp(16)
    with torch.no_grad():
        next(module.parameters()).zero_()
    found = bound(module, basis="own", dimensions=200)
    weights = torch.empty_like(found.task.flat.weights)
    found.network.write(torch.ones(found.size), weights, 0)
    first = found.task.flat.template.views(weights)[0]
    assert first.shape == (16, 64)
    assert (first != 0).all()
