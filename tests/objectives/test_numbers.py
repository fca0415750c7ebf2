"""Losses, tallies and scores of every objective against numbers derived by hand, and the law that tallies add up."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from subbit.core.errors import DataError, ModelError
from subbit.data import Examples
from subbit.objectives import OBJECTIVES, Objective, find_objective
from subbit.objectives.objective import IGNORED, add_up
from subbit.objectives.own import OwnObjective


def batch(labels: Tensor) -> Examples:
    return Examples(torch.zeros(len(labels), 1), labels)


def judged(objective: Objective, outputs: Any, labels: Tensor) -> tuple[float, dict[str, float]]:
    examples = batch(labels)
    tally = objective.tally(outputs, examples)
    assert tally.dtype == torch.float64
    assert len(tally) == len(labels)
    sums = add_up(tally.numpy())
    assert objective.possible(sums)
    return float(objective.loss(outputs, examples)), objective.scores(sums)


def test_classification() -> None:
    """Right, wrong (a tie goes to the first class), right."""
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [0.0, math.log(3)]])
    loss, scores = judged(find_objective("classification"), logits, torch.tensor([0, 1, 1]))
    wanted = (2 * math.log(4 / 3) + math.log(2)) / 3
    assert loss == pytest.approx(wanted)
    assert scores == {"accuracy": pytest.approx(2 / 3), "loss": pytest.approx(wanted)}
    assert find_objective("classification").highest_loss(10) == pytest.approx(5 * math.log(10))


def test_multi_label() -> None:
    """Told {0, 1} and {2}, wanted {0} and {1, 2}: two found, one wrong, one missed."""
    logits = torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    loss, scores = judged(find_objective("multi-label"), logits, labels)
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    assert loss == pytest.approx((7 * right + 2 * wrong) / 9)
    assert scores == {"f1": pytest.approx(2 / 3), "exact_match": pytest.approx(1 / 3), "loss": pytest.approx(loss)}


def test_multi_label_without_any_label_is_right_about_none() -> None:
    scores = judged(find_objective("multi-label"), torch.full((2, 3), -1.0), torch.zeros(2, 3))[1]
    assert scores["f1"] == scores["exact_match"] == 1.0


def test_regression() -> None:
    """Errors 1, 0, -2; the labels 1, 2, 6 have mean 3 and squares 4 + 1 + 9 around it."""
    for shape in ((3,), (3, 1)):
        loss, scores = judged(
            find_objective("regression"), torch.tensor([2.0, 2.0, 4.0]).reshape(shape), torch.tensor([1.0, 2.0, 6.0])
        )
        assert loss == pytest.approx(5 / 3)
        assert scores["rmse"] == pytest.approx(math.sqrt(5 / 3))
        assert scores["mae"] == pytest.approx(1.0)
        assert scores["r2"] == pytest.approx(1 - 5 / 14)
        assert scores["loss"] == pytest.approx(5 / 3)


def test_segmentation() -> None:
    """Told 0 0 1 1, wanted 0 1 1 -100. Class 0: 1 of 2. Class 1: 1 of 2; the last pixel does not count."""
    told = torch.tensor([[[0, 0], [1, 1]]])
    logits = torch.nn.functional.one_hot(told, 3).permute(0, 3, 1, 2).float() * 20
    loss, scores = judged(find_objective("segmentation"), logits, torch.tensor([[[0, 1], [1, IGNORED]]]))
    assert scores["mean_iou"] == pytest.approx(0.5)  # Class 2 is nowhere, and not in the mean.
    assert scores["pixel_accuracy"] == pytest.approx(2 / 3)
    assert loss == pytest.approx(20 / 3, rel=1e-6)
    assert scores["loss"] == pytest.approx(loss)


def test_segmentation_sums_before_it_divides() -> None:
    """IoU is that of all pixels together: 3 of 4 and 0 of 1 pixels of class 1 are 3 of 5."""
    told = torch.tensor([[[1, 1], [1, 0]], [[0, 0], [0, 0]]])
    wanted = torch.tensor([[[1, 1], [1, 1]], [[0, 0], [0, 1]]])
    logits = torch.nn.functional.one_hot(told, 2).permute(0, 3, 1, 2).float()
    scores = judged(find_objective("segmentation"), logits, wanted)[1]
    assert scores["mean_iou"] == pytest.approx((3 / 5 + 3 / 5) / 2)


@pytest.mark.parametrize("vocabulary", [2, 17, 256])
def test_a_uniform_language_model_has_the_perplexity_of_its_vocabulary(vocabulary: int) -> None:
    tokens = torch.randint(0, vocabulary, (3, 5), generator=torch.Generator().manual_seed(0))
    loss, scores = judged(find_objective("language"), torch.zeros(3, 5, vocabulary), tokens)
    assert loss == pytest.approx(math.log(vocabulary), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(vocabulary, rel=1e-5)


def test_language_is_about_the_next_token_and_ignores_padding() -> None:
    """The outputs at each place tell the token after it, except at one of three places that count."""
    tokens = torch.tensor([[1, 2, 3, 0], [3, 1, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    objective = find_objective("language")
    examples = objective.prepare(
        Examples({"input_ids": tokens, "attention_mask": mask}, torch.empty((2, 0), dtype=torch.float32))
    )
    assert examples.labels.tolist() == [[1, 2, 3, IGNORED], [3, 1, IGNORED, IGNORED]]
    told = torch.tensor([[2, 3, 0, 0], [2, 0, 0, 0]])
    logits = torch.nn.functional.one_hot(told, 4).float() * 30
    sums = add_up(objective.tally(SimpleNamespace(logits=logits), examples).numpy())
    scores = objective.scores(sums)
    assert sums[2] == 3
    assert scores["token_accuracy"] == pytest.approx(2 / 3)
    assert scores["loss"] == pytest.approx(10, rel=1e-6)
    assert scores["perplexity"] == pytest.approx(math.exp(10), rel=1e-5)
    assert float(objective.loss(logits, examples)) == pytest.approx(10, rel=1e-6)


def test_the_module_says_its_own_loss() -> None:
    objective = find_objective("module")
    for outputs in (torch.tensor(0.25), {"loss": torch.tensor(0.25)}, SimpleNamespace(loss=torch.tensor([0.2, 0.3]))):
        loss, scores = judged(objective, outputs, torch.zeros(4))
        assert loss == pytest.approx(0.25)
        assert scores == {"loss": pytest.approx(0.25)}
    with pytest.raises(ModelError, match="without a loss"):
        objective.loss({"logits": torch.zeros(2)}, batch(torch.zeros(2)))


def mean_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - labels).abs().mean()


def near(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - labels).abs() < 1


def test_functions_of_ones_own() -> None:
    outputs, labels = torch.tensor([0.0, 0.5, 4.0]), torch.tensor([0.0, 0.0, 0.0])
    loss, scores = judged(OwnObjective(mean_error, near), outputs, labels)
    assert loss == pytest.approx(1.5)
    assert list(scores) == ["near", "loss"]
    assert scores == {"near": pytest.approx(2 / 3), "loss": pytest.approx(1.5)}
    assert OwnObjective(mean_error, near).higher_is_better
    assert not OwnObjective(mean_error).higher_is_better
    assert OwnObjective(mean_error).better(0.1, 0.2)
    assert judged(OwnObjective(mean_error), outputs, labels)[1] == {"loss": pytest.approx(1.5)}


SIZES: dict[str, tuple[tuple[int, ...], Any]] = {
    "classification": ((4,), lambda count, key: torch.randint(0, 4, (count,), generator=key)),
    "multi-label": ((3,), lambda count, key: torch.randint(0, 2, (count, 3), generator=key).float()),
    "regression": ((2,), lambda count, key: torch.randn(count, 2, generator=key)),
    "segmentation": ((3, 4, 5), lambda count, key: torch.randint(0, 3, (count, 4, 5), generator=key)),
    "language": ((6, 7), lambda count, key: torch.randint(0, 7, (count, 6), generator=key)),
}


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 20), cuts=st.lists(st.integers(0, 20), max_size=4), seed=st.integers(0, 1000))
def test_tallies_add_up_over_any_split_of_a_test_set(name: str, count: int, cuts: list[int], seed: int) -> None:
    shape, make = SIZES[name]
    key = torch.Generator().manual_seed(seed)
    outputs, labels, objective = torch.randn(count, *shape, generator=key), make(count, key), find_objective(name)
    whole = objective.scores(add_up(objective.tally(outputs, batch(labels)).numpy()))
    ends = sorted({0, count, *(min(cut, count) for cut in cuts)})
    parts = [
        add_up(objective.tally(outputs[start:stop], batch(labels[start:stop])).numpy())
        for start, stop in itertools.pairwise(ends)
    ]
    together = objective.scores(np.sum(parts, axis=0))
    assert list(together) == list(whole)
    for score in whole:
        assert together[score] == pytest.approx(whole[score], rel=1e-6, abs=1e-9, nan_ok=True)
    if not math.isnan(whole["loss"]) and name != "segmentation":
        mean = float(objective.loss(outputs, batch(labels)))
        assert mean == pytest.approx(whole["loss"], rel=1e-4)


@pytest.mark.parametrize("name", SIZES)
def test_sums_that_no_network_has_are_refused(name: str) -> None:
    shape, make = SIZES[name]
    key = torch.Generator().manual_seed(0)
    outputs, objective = torch.randn(5, *shape, generator=key), find_objective(name)
    sums = add_up(objective.tally(outputs, batch(make(5, key))).numpy())
    assert objective.possible(sums)
    assert not objective.possible(sums[:-1])
    for place in range(len(sums)):
        broken = sums.copy()
        broken[place] = math.nan
        assert not objective.possible(broken)
    assert not objective.possible(-sums)


def test_labels_get_the_type_of_their_objective() -> None:
    counts = torch.tensor([0, 1, 1])
    assert find_objective("regression").prepare(batch(counts)).labels.dtype == torch.float32
    assert find_objective("multi-label").prepare(batch(counts[:, None])).labels.dtype == torch.float32
    with pytest.raises(DataError, match="needs int64"):
        find_objective("classification").prepare(batch(torch.zeros(3)))


def test_every_objective_has_a_test_here() -> None:
    assert {*OBJECTIVES.names()} >= {*SIZES, "module", "given"}
