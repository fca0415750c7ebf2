"""Layers, groups and structures of a masked network."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from subbit.core.randomness import torch_generator
from subbit.models import FlatModel
from subbit.models.hard_mask import HardMask, frozen_weights
from subbit.models.small import CharLstm
from subbit.models.structure import Layer, Structures, empty_groups, group_lasso, masked_layers


def layer(name: str, offset: int, rows: int, columns: int, cells: int = 1, classifier: bool = False) -> Layer:
    return Layer(f"{name}.weight", name, offset, rows, columns, cells, classifier)


LAYERS = (layer("first", 0, 2, 2), layer("second", 4, 3, 2), layer("head", 10, 2, 3, classifier=True))


# Which weights are masked.


def test_the_output_gate_of_an_lstm_has_real_values() -> None:
    """Hidden size 6: 24 rows of four gates, in torch's order input, forget, cell, output. The last 6 are left out."""
    flat = FlatModel(CharLstm(11, 3, embedding=4, hidden=6, layers=1), "all: weights")
    real, masked = ({one.name: one for one in masked_layers(flat, gate)} for gate in (False, True))
    for name, columns in (("lstm.weight_ih_l0", 4), ("lstm.weight_hh_l0", 6)):
        assert real[name].shape == (18, columns, 1)
        assert masked[name].shape == (24, columns, 1)
        assert real[name].offset == masked[name].offset
    assert real["head.weight"].shape == masked["head.weight"].shape == (3, 6, 1)
    assert real["head.weight"].classifier


def test_filters_and_channels_of_a_convolution() -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4, 3))
    first, last = masked_layers(FlatModel(module, "all"), False)
    assert first.shape == (4, 2, 9)
    assert last.shape == (3, 4, 1)
    assert last.offset == 4 * 2 * 9 + 4


# The group lasso.


def test_group_lasso_by_hand() -> None:
    """Scores 0, so every present element counts 1/2. Of the 2 x 2 layer without its last element the rows have norms
    sqrt(1/2), 1/2, and the columns too. Scaled by the roots of the sizes 2, 1: 1, 1/2, twice."""
    alive = torch.tensor([1.0, 1.0, 1.0, 0.0])
    total, slope = group_lasso(torch.zeros(4), alive, LAYERS[:1])
    assert total == pytest.approx(2 * math.sqrt(0.5) + 1)
    # d/ds of one norm is theta / norm * theta (1 - theta): (1/2 / norm) / 4, from the row and from the column.
    first, other = 2 * 0.125 / math.sqrt(0.5), 0.125 / math.sqrt(0.5) + 0.125 / 0.5
    assert slope.tolist() == pytest.approx([first, other, other, 0])
    assert group_lasso(torch.zeros(4), alive, LAYERS[:1], scaled=True)[0] == pytest.approx(3)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_slope_is_the_gradient(scaled: bool) -> None:
    generator = torch_generator(3)
    scores = torch.randn(16, generator=generator, dtype=torch.float64)
    alive = (torch.rand(16, generator=generator) < 0.7).double()
    _, slope = group_lasso(scores, alive, LAYERS, scaled)
    for place in range(16):
        step = torch.zeros_like(scores)
        step[place] = 1e-6
        above, below = (float(group_lasso(scores + sign * step, alive, LAYERS, scaled)[0]) for sign in (1, -1))
        assert float(slope[place]) == pytest.approx((above - below) / 2e-6, abs=1e-6)


def test_a_pruned_group_has_a_slope_of_zero() -> None:
    _, slope = group_lasso(torch.zeros(4), torch.zeros(4), LAYERS[:1])
    assert slope.tolist() == [0, 0, 0, 0]


def test_empty_rows_and_columns_by_hand() -> None:
    """[[1, 0], [0, 0]] has one empty row and column; [[0, 1], [0, 0], [0, 1]] one of each; the last none."""
    mask = np.array([1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0], dtype=np.bool_)
    assert empty_groups(mask, LAYERS) == (2, 2)


# Structures.


def test_pruning_elements_by_hand() -> None:
    """Of the last two layers a third: 2 of 6 elements of each, those of the largest saliency; of equal ones the larger
    weight, then the first. The first layer belongs to everybody."""
    structures = Structures(LAYERS, 2, 1 / 3, whole_rows=False, per_layer=True)
    saliency = np.array([1, 5, 2, 6, 3, 4, 0, 0, 0, 0, 0, 9], dtype=float)
    magnitude = np.array([1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1], dtype=float)
    units = structures.prune(saliency, magnitude)
    assert np.flatnonzero(units).tolist() == [1, 3, 7, 11]
    assert np.flatnonzero(structures.elements(units)).tolist() == [0, 1, 2, 3, 5, 7, 11, 15]
    assert structures.kept_elements == 8
    assert structures.fault(units) == ""


def test_the_best_of_all_layers_together() -> None:
    structures = Structures(LAYERS, 2, 1 / 3, whole_rows=False, per_layer=False)
    saliency = np.array([9, 8, 7, 0, 0, 0, 6, 1, 0, 0, 0, 0], dtype=float)
    assert np.flatnonzero(structures.prune(saliency, saliency)).tolist() == [0, 1, 2, 6]


def test_pruning_rows_by_hand() -> None:
    """Row sums of the second layer are 6, 5, 9: of 3 rows 2 stay. The rows of the classifier are the classes."""
    structures = Structures(LAYERS, 3, 0.6, whole_rows=True, per_layer=True)
    units = structures.prune(np.array([6, 0, 2, 3, 4, 5], dtype=float), np.ones(6))
    assert units.tolist() == [True, False, True]
    expected = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15]
    assert np.flatnonzero(structures.elements(units)).tolist() == expected


def test_the_first_layer_is_never_pruned() -> None:
    assert [one.owner for one in Structures(LAYERS, 9, 0.5, False, True).layers] == ["second", "head"]
    assert Structures(LAYERS, 0, 0.5, False, True).units == 0


@pytest.mark.parametrize("kept", [[], [0], [0, 1, 2, 6, 7], [0, 1, 2, 3], range(12)])
def test_a_structure_that_no_pruning_makes(kept: list[int]) -> None:
    structures = Structures(LAYERS, 2, 1 / 3, whole_rows=False, per_layer=True)
    units = np.zeros(12, dtype=np.bool_)
    units[list(kept)] = True
    assert "needs [2, 2]" in structures.fault(units)


# The mask itself.


def test_a_hard_mask_by_hand() -> None:
    """Places: one, zero, pruned although its score is large, real. Scores of zero are ones."""
    initial, alive = torch.tensor([2.0, 3.0, 5.0, 7.0]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    mask = HardMask(initial, alive, torch.tensor([3]), rate=0.1)
    trained, weights, gradient = torch.tensor([0.0, -1.0, 9.0, 4.0]), torch.empty(4), torch.empty(4)
    mask.write(trained, weights, key=0)
    assert weights.tolist() == pytest.approx([2, 0, 0, 7.4])
    mask.pull_back(torch.ones(4), trained, gradient)
    theta = 1 / (1 + math.e)
    assert gradient.tolist() == pytest.approx([2 / 4, 3 * theta * (1 - theta), 0, 1])


def test_soft_training_sees_sigmoids_and_writes_a_hard_network() -> None:
    mask = HardMask(torch.tensor([2.0, 3.0]), torch.ones(2), torch.zeros(0, dtype=torch.int64), 1.0, soft=True)
    trained, weights = torch.tensor([0.0, -1.0]), torch.empty(2)
    mask.write(trained, weights, key=0)
    assert weights.tolist() == pytest.approx([1, 3 / (1 + math.e)])
    mask.write_hard(trained, weights)
    assert weights.tolist() == [2, 0]


def test_frozen_weights_have_the_size_that_pruning_asks_for() -> None:
    """Signs times sqrt(2 / (share fan-in)): fan-in 2 whole gives 1; 2 halved gives sqrt 2. Biases stay."""
    initial = torch.tensor([0.3, -0.2, 0.0, -9.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 0.7])
    frozen = frozen_weights(initial, LAYERS[:2], "signed", [1.0, 0.5], key=1)
    two = math.sqrt(2)
    assert frozen.tolist() == pytest.approx([1, -1, 1, -1, two, -two, two, two, -two, two, 0.7])
    wide = layer("wide", 0, 200, 100)
    drawn = frozen_weights(torch.zeros(20_000), (wide,), "kaiming", [0.5], key=1)
    assert float(drawn.square().mean()) == pytest.approx(2 / 50, rel=0.05)
