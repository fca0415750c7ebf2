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
from torch import Tensor, nn

import subbit
from subbit.core.errors import ConfigError
from subbit.core.randomness import torch_randomness
from subbit.export.mask_file import mask_of_run
from subbit.export.runs import open_run
from subbit.maps.masking import Masking
from subbit.maps.subspace import MASKED, TRAINED, Subspace
from subbit.models import mask_rounding, model_sha256
from subbit.models.mask_rounding import RIDGE, find_mask, metric, nearest
from subbit.models.subspaced import Rounding
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace


def matrix(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_where_inputs_have_nothing_to_do_with_each_other_each_weight_is_rounded_by_itself() -> None:
    kept = nearest(matrix(2, -2, 2, 2), matrix(1.1, -0.9, -5, 9), torch.eye(4, dtype=torch.float64))
    assert kept.tolist() == [[True, False, False, True]]


def test_where_all_inputs_are_equal_only_the_sum_counts() -> None:
    """3 + 2 + 1 shall be 4.9. Visited in order: leaving 3 out costs more than it brings, leaving 2 out turns an error
    of 1.1 into one of -.9, and from there no single change is better."""
    ones = torch.ones(3, 3, dtype=torch.float64)
    assert nearest(matrix(3, 2, 1), matrix(3, 2, -0.1), ones).tolist() == [[True, False, True]]
    assert nearest(matrix(3, 2, 1), matrix(3, 2, 1), ones).all()


def test_the_metric_by_hand() -> None:
    """W'W = diag(16, 4), its root diag(4, 2), which at a mean of 1 is diag(4/3, 2/3)."""
    expected = torch.diag(torch.tensor([4 / 3 + RIDGE, 2 / 3 + RIDGE], dtype=torch.float64))
    torch.testing.assert_close(metric(torch.tensor([[4.0, 0], [0, 2]], dtype=torch.float64)), expected)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
def test_the_root_is_the_same_from_either_side(shape: tuple[int, int]) -> None:
    start = drawn(0, *shape)
    found = metric(start) - RIDGE * torch.eye(shape[1])
    square = start.T @ start
    scale = (found @ found).trace() / square.trace()
    torch.testing.assert_close(found @ found, scale * square)


def test_a_layer_of_zeros_stays() -> None:
    assert metric(torch.zeros(3, 2, dtype=torch.float64)).tolist() == [[1, 0], [0, 1]]
    assert find_mask(torch.zeros(3, 2), torch.zeros(3, 2)) is not None


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_rounded_into_something_that_is(value: float) -> None:
    assert find_mask(torch.ones(3, 2), torch.full((3, 2), value)) is None


@given(outputs=st.integers(1, 300), inputs=st.integers(1, 12), far=st.floats(0, 3), seed=st.integers(0, 99))
def test_it_is_never_farther_away_than_the_start(outputs: int, inputs: int, far: float, seed: int) -> None:
    start = drawn(seed, outputs, inputs)
    moved = start + far * drawn(seed + 100, outputs, inputs)
    weights = metric(start)

    def errors(network: Tensor) -> Tensor:
        return torch.einsum("ij,jk,ik->i", network - moved, weights, network - moved)

    assert (errors(start * nearest(start, moved, weights)) <= errors(start) + 1e-9).all()
    assert nearest(start, start, weights).all()


def test_wide_layers_are_rounded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    start = drawn(0, 20, 24)
    moved = start * (1 + 0.3 * drawn(1, 20, 24))
    parts = [find_mask(start[:, part], moved[:, part]) for part in (slice(10), slice(10, 20), slice(20, 24))]
    monkeypatch.setattr(mask_rounding, "MOST_INPUTS", 10)
    found = find_mask(start, moved)
    assert found is not None
    assert torch.equal(found, torch.cat([part for part in parts if part is not None], 1))


def test_small_weights_together_do_what_the_moved_matrix_does() -> None:
    """64 inputs near a plane; the layer shall respond to one direction of it a tenth less. Keeping what is at least
    half would change nothing."""
    plane, sides = drawn(0, 2, 64), drawn(1, 40, 2)
    start = sides @ plane + 0.1 * drawn(2, 40, 64)
    direction = plane[:1] / plane[0].norm()
    moved = start @ (torch.eye(64) - 0.1 * direction.T @ direction)
    inputs = drawn(3, 500, 2) @ plane + 0.1 * drawn(4, 500, 64)
    kept = find_mask(start, moved)
    assert kept is not None
    before, after = ((inputs @ (each - moved).T).square().sum() for each in (start, start * kept))
    assert 0 < (~kept).sum() < kept.numel() / 2
    assert after < before / 2


class Turned(nn.Module):
    """A position embedding of one row, and a layer whose weight is [inputs, outputs], as in GPT-2."""

    def __init__(self) -> None:
        from transformers.pytorch_utils import Conv1D

        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0)))
        self.hidden, self.head = Conv1D(48, 64), nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        inputs = images.float().flatten(1) / 16 + self.positions.flatten(1)
        outputs: Tensor = self.head(torch.relu(self.hidden(inputs)))
        return outputs


def turned() -> nn.Module:
    with torch_randomness(7):
        return Turned()


def bound(module: nn.Module | None = None, **words: Any) -> Subspace:
    method = Workplace(digits_problem(module), settings(method="subbit-masks", select="all", **words)).method("main")
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


def test_rows_are_outputs_and_a_single_row_is_no_matrix() -> None:
    found = bound(turned())
    assert isinstance(found.masking, Masking)
    (place,) = found.masking.places
    assert place.outputs == 48
    vector = np.random.default_rng(0).normal(scale=0.2, size=found.size).astype(np.float32)
    trained, masked = (written(found, vector, name) for name in (TRAINED, MASKED))
    start = found.task.flat.initial[place.rows].view(64, 48)
    kept = find_mask(start.T, trained["hidden.weight"].T)
    assert kept is not None
    assert not kept.all()
    assert torch.equal(masked["hidden.weight"], start * kept.T)
    assert torch.equal(masked["positions"], trained["positions"])


def test_clients_train_the_network_that_is_used() -> None:
    found = bound()
    vector = np.random.default_rng(0).normal(scale=0.2, size=found.size).astype(np.float32)
    used = torch.cat([each.flatten() for each in written(found, vector, MASKED).values()])
    trained, weights = found.received(vector), torch.empty_like(used)
    for share, expected in ((1.0, used), (0.0, found.task.flat.initial)):
        found.network.write(share * trained, weights, 0)
        torch.testing.assert_close(weights, expected)


def test_the_network_as_trained_has_nothing_of_a_mask() -> None:
    found = bound()
    vector = np.random.default_rng(0).normal(scale=0.2, size=found.size).astype(np.float32)
    before = written(found, vector, TRAINED)
    found.received(vector)
    after = written(found, vector, TRAINED)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("share", "left"), [(0.5, 0.5), (0, 0), (2, 1), (-1, 0)])
def test_what_rounding_changed_fades_towards_the_start(share: float, left: float) -> None:
    at, change, weights = torch.tensor([3.0, 4.0]), torch.tensor([1.0, -2.0, 5.0]), torch.zeros(3)
    Rounding(at, change).add(share * at, weights)
    assert weights.tolist() == [left, -2 * left, 5 * left]
    Rounding(torch.zeros(2), change).add(at, weights)
    assert weights.tolist() == [left, -2 * left, 5 * left]


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
