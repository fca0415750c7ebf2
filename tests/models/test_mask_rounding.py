"""The mask that responds most like a moved matrix: by hand, never worse than the start, and what a run makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.problems import MODULES, digits_problem, mlp, settings
from torch import Tensor

import subbit
from subbit.core.errors import ConfigError
from subbit.export.mask_file import mask_of_run
from subbit.export.runs import open_run
from subbit.maps.subspace import MASKED, TRAINED, Subspace
from subbit.models import model_sha256
from subbit.models.mask_rounding import RIDGE, find_mask, metric, rounded
from subbit.models.subspaced import Rounding
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace


def row(*values: float) -> Any:
    return np.array([values], dtype=np.float64)


def test_where_inputs_have_nothing_to_do_with_each_other_each_weight_is_rounded_by_itself() -> None:
    kept = find_mask(row(2, -2, 2, 2), row(1.1, -0.9, -5, 9), np.eye(4))
    assert kept.tolist() == [[True, False, False, True]]


def test_where_all_inputs_are_equal_only_the_sum_counts() -> None:
    """3 + 2 + 1 shall be 4.9. Visited in order: leaving 3 out costs more than it brings, leaving 2 out turns an error
    of 1.1 into one of -.9, and from there no single change is better."""
    assert find_mask(row(3, 2, 1), row(3, 2, -0.1), np.ones((3, 3))).tolist() == [[True, False, True]]
    assert find_mask(row(3, 2, 1), row(3, 2, 1), np.ones((3, 3))).all()


def test_the_metric_by_hand() -> None:
    """W'W = diag(16, 4), its root diag(4, 2), which at a mean of 1 is diag(4/3, 2/3)."""
    expected = np.diag([4 / 3 + RIDGE, 2 / 3 + RIDGE])
    np.testing.assert_allclose(metric(np.array([[4.0, 0], [0, 2]])), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
def test_the_root_is_the_same_from_either_side(shape: tuple[int, int]) -> None:
    start = np.random.default_rng(0).normal(size=shape)
    found = metric(start) - RIDGE * np.eye(shape[1])
    square = start.T @ start
    scale = np.trace(found @ found) / np.trace(square)
    np.testing.assert_allclose(found @ found, scale * square, atol=1e-9)


def test_a_layer_of_zeros_stays() -> None:
    assert torch.equal(rounded(torch.zeros(3, 2), torch.ones(3, 2)), torch.zeros(3, 2))


@given(outputs=st.integers(1, 300), inputs=st.integers(1, 12), far=st.floats(0, 3), seed=st.integers(0, 99))
def test_it_is_never_farther_away_than_the_start(outputs: int, inputs: int, far: float, seed: int) -> None:
    draws = np.random.default_rng(seed)
    start = draws.normal(size=(outputs, inputs))
    moved = start + far * draws.normal(size=start.shape)
    weights = metric(start)

    def errors(network: Any) -> Any:
        return np.einsum("ij,jk,ik->i", network - moved, weights, network - moved)

    kept = find_mask(start, moved, weights)
    assert (errors(start * kept) <= errors(start) + 1e-9).all()
    assert find_mask(start, start, weights).all()


def test_small_weights_together_do_what_the_moved_matrix_does() -> None:
    """64 inputs near a plane; the layer shall respond to one direction of it a tenth less. Keeping what is at least
    half would change nothing."""
    draws = np.random.default_rng(1)
    plane, sides = draws.normal(size=(2, 64)), draws.normal(size=(40, 2))
    start = sides @ plane + 0.1 * draws.normal(size=(40, 64))
    direction = plane[:1] / np.linalg.norm(plane[0])
    moved = start @ (np.eye(64) - 0.1 * direction.T @ direction)
    inputs = draws.normal(size=(500, 2)) @ plane + 0.1 * draws.normal(size=(500, 64))
    kept = find_mask(start, moved, metric(start))
    before, after = (np.square(inputs @ (each - moved).T).sum() for each in (start, start * kept))
    assert 0 < (~kept).sum() < kept.size / 2
    assert after < before / 2


def bound(**words: Any) -> Subspace:
    method = Workplace(digits_problem(), settings(method="subbit-masks", select="all", **words)).method("main")
    assert isinstance(method.map, Subspace)
    return method.map


def written(found: Subspace, vector: Any, network: str) -> dict[str, Tensor]:
    found.write(vector, network, 0)
    template = found.task.flat.template
    views = template.views(found.task.flat.weights.detach().clone())
    return dict(zip(template.names, views, strict=True))


def test_matrices_become_masks_and_the_rest_is_as_trained() -> None:
    found = bound()
    vector = np.random.default_rng(0).normal(scale=0.2, size=found.size).astype(np.float32)
    template = found.task.flat.template
    start = dict(zip(template.names, template.views(found.task.flat.initial), strict=True))
    trained, masked = (written(found, vector, name) for name in (TRAINED, MASKED))
    kept = masked["2.weight"] != 0
    assert torch.equal(masked["2.weight"], start["2.weight"] * kept)
    assert 0.5 < float(kept.float().mean()) < 1
    for name in ("2.bias", "4.weight", "4.bias"):
        assert torch.equal(masked[name], trained[name])
        assert not torch.equal(masked[name], start[name])


def test_clients_train_the_network_that_is_used() -> None:
    found = bound()
    vector = np.random.default_rng(0).normal(scale=0.2, size=found.size).astype(np.float32)
    used = torch.cat([each.flatten() for each in written(found, vector, MASKED).values()])
    trained, weights = found.received(vector), torch.empty_like(used)
    for share, expected in ((1.0, used), (0.0, found.task.flat.initial)):
        found.network.write(share * trained, weights, 0)
        torch.testing.assert_close(weights, expected)


def test_what_rounding_changed_fades_towards_the_start() -> None:
    at, change, weights = torch.tensor([3.0, 4.0]), torch.tensor([1.0, -2.0, 5.0]), torch.zeros(3)
    Rounding(at, change).add(torch.tensor([6.0, 8.0]) / 4, weights)
    assert weights.tolist() == [0.5, -1.0, 2.5]
    Rounding(torch.zeros(2), change).add(at, weights)
    assert weights.tolist() == [0.5, -1.0, 2.5]


def test_the_start_is_the_start() -> None:
    found = bound()
    masked = torch.cat([each.flatten() for each in written(found, found.start(), MASKED).values()])
    assert torch.equal(masked, found.task.flat.initial)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_its_bytes_are_those_of_subbit(module: Any) -> None:
    words: dict[str, Any] = {"select": "all", "dimensions": 500}
    one, other = (
        run_job(digits_problem(module()), settings(method=name, **words)).summary for name in ("subbit", "subbit-masks")
    )
    for key in ("uplink_bytes", "downlink_bytes", "one_off_bytes"):
        assert one[key] == other[key]
    assert {"score_masked", "score_trained"} < {*other}
    assert other["score"] == other["score_masked"]


def test_a_run_is_a_mask_file(tmp_path: Path) -> None:
    """Of the matrices it has bits, of the rest values."""
    problem = digits_problem()
    chosen = settings(method="subbit-masks", select="all", head="lda", folder=str(tmp_path), name="run")
    run_job(problem, chosen, RunFolder.create(chosen, ""))
    trained = open_run(tmp_path / "run", problem=problem)
    file = mask_of_run(trained)
    assert sorted(file.values) == ["2.bias", "4.bias", "4.weight"]
    loaded = subbit.load(mlp(), file.to_bytes())
    assert model_sha256(loaded.module) == model_sha256(trained.workplace.module)


def test_a_random_subspace_has_no_mask() -> None:
    with pytest.raises(ConfigError, match="masked: needs basis=own"):
        settings(method="subbit-masks", basis="random")
