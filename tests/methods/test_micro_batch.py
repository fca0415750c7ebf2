"""micro_batch: the gradient of a batch in pieces is that of the whole batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import subbit
from subbit.core.errors import ConfigError
from subbit.data.examples import Examples
from subbit.data.form import form_of
from subbit.local.backward import Backward
from subbit.models import FlatModel
from subbit.models.task import Task
from subbit.objectives.classes import Classification, MultiLabel
from subbit.objectives.objective import IGNORED, Objective
from subbit.objectives.own import ModuleLoss
from subbit.objectives.positions import Language, Segmentation
from subbit.objectives.regression import Regression
from tests.problems import conv_net, digits_problem


def make_task(module: nn.Module, objective: Objective, batch: Examples, **values: Any) -> Task:
    flat = FlatModel(module, "all", values.pop("batchnorm", "frozen"))
    numbers = {"classes": 3, "seed": 0, "rounds": 1, "clients": 1, "participants": 1}
    return Task(flat=flat, pretrained=False, form=form_of(batch), objective=objective, **numbers, **values)


def language() -> Examples:
    """Texts of 6, 2, 1, 5 and 4 tokens: the third has no next token to predict, the pieces count 5+1, 4 and 3."""
    tokens = torch.randint(0, 7, (5, 6))
    lengths = torch.tensor([6, 2, 1, 5, 4])
    return Examples(tokens, tokens.masked_fill(torch.arange(6) >= lengths[:, None], IGNORED))


def segmentation() -> Examples:
    labels = torch.randint(0, 3, (5, 2, 2))
    labels[1] = IGNORED
    labels[3, 0] = IGNORED
    return Examples(torch.randn(5, 4, 2, 2), labels)


class OwnLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.layer(inputs), labels)


CASES: dict[str, Any] = {
    "classification": (Classification, lambda: nn.Linear(4, 3), lambda: (torch.randn(5, 4), torch.arange(5) % 3)),
    "multi-label": (MultiLabel, lambda: nn.Linear(4, 3), lambda: (torch.randn(5, 4), (torch.randn(5, 3) > 0).float())),
    "regression": (Regression, lambda: nn.Linear(4, 2), lambda: (torch.randn(5, 4), torch.randn(5, 2))),
    "segmentation": (Segmentation, lambda: nn.Conv2d(4, 3, 1), segmentation),
    "language": (Language, lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)), language),
    "module": (ModuleLoss, OwnLoss, lambda: (torch.randn(5, 4), torch.arange(5) % 3)),
}


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_pieces_give_the_gradient_of_the_batch(name: str, most: int) -> None:
    objective, make, draw = CASES[name]
    found = draw()
    batch = found if isinstance(found, Examples) else Examples(*found)
    task = make_task(make(), objective(), batch)
    loss, whole = Backward(task)(batch), task.flat.gradient.clone()
    assert whole.any()
    task.flat.gradient.fill_(7.0)  # What was there before does not count.
    assert Backward(task, None, most)(batch) == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(task.flat.gradient, whole, rtol=0, atol=1e-6)
    Backward(task, None, most)(batch, 8.0)
    torch.testing.assert_close(task.flat.gradient, 8 * whole, rtol=0, atol=1e-5)


def test_numbers_by_hand() -> None:
    """Squares of w x - y at w = 1: x = 1, 2, 3 and y = 0, 0, 0. d/dw = 2 w x^2, of which the mean is 2 * 14 / 3."""
    batch = Examples(torch.tensor([[1.0], [2.0], [3.0]]), torch.zeros(3))
    task = make_task(nn.Linear(1, 1, bias=False), Regression(), batch)
    task.flat.weights.fill_(1.0)
    # Not the mean of the pieces' means, (2 * 5 / 2 + 2 * 9) / 2 = 11.5.
    assert Backward(task, None, 2)(batch) == pytest.approx(14 / 3)
    assert task.flat.gradient.tolist() == pytest.approx([28 / 3])


def test_weights_count_what_the_loss_is_a_mean_over() -> None:
    assert Language().weight(language()) == 5 + 1 + 0 + 4 + 3
    assert Segmentation().weight(segmentation()) == 20 - 4 - 2
    assert Classification().weight(Examples(torch.ones(4, 1), torch.zeros(4, dtype=torch.int64))) == 4


def test_a_batch_of_padding_has_no_loss() -> None:
    batch = Examples(torch.zeros(3, 4, dtype=torch.int64), torch.full((3, 4), IGNORED))
    task = make_task(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)), Language(), batch)
    assert math.isnan(Backward(task, None, 2)(batch))


SETTINGS: list[dict[str, Any]] = [
    {"method": "fedavg", "optimizer": "sgd"},
    {"method": "fedavg", "optimizer": "sgd", "regulariser": "fedprox", "gradient_clip": 1.0},
    {"method": "fedavg", "optimizer": "sgd", "regulariser": "moon"},
    {"method": "fedavg", "optimizer": "sgd", "precision": "float16"},
    {"method": "fedpm", "optimizer": "sgd"},
    {"method": "zampling", "optimizer": "sgd"},
    {"method": "per-fedavg"},
    {"method": "fedmask", "optimizer": "sgd"},
]


@pytest.mark.parametrize("values", SETTINGS, ids=lambda values: "-".join(map(str, values.values())))
def test_a_run_in_pieces_is_the_run(values: dict[str, Any]) -> None:
    """Up to rounding, which a sum in another order changes."""
    problem = digits_problem()
    data = [problem.client_data(client) for client in range(2)]
    plain, pieces = (
        subbit.fine_tune(problem.module, data, problem.test, rounds=1, epochs=1, micro_batch=most, **values)
        for most in (None, 7)
    )
    rough = 2e-3 if "precision" in values else 1e-4
    if values["method"] in ("per-fedavg", "fedmask"):
        assert pieces.score == pytest.approx(plain.score, abs=0.02)
        return
    for one, two in zip(plain.module.parameters(), pieces.module.parameters(), strict=True):
        differs = ~torch.isclose(one, two, rtol=0, atol=rough)
        # A mask is kept or not: rounding may turn over a place, and no more.
        assert differs.float().mean() <= (0.01 if values["method"] in ("fedpm", "zampling") else 0)


@pytest.mark.parametrize("policy", ["batch", "average"])
def test_statistics_of_a_batch_are_refused(policy: str) -> None:
    problem = digits_problem(conv_net())
    data = problem.client_data(0)
    with pytest.raises(ConfigError, match=f"micro_batch=8: .* batchnorm={policy}, and a piece has others"):
        subbit.fine_tune(problem.module, [data], data, method="fedavg", rounds=1, micro_batch=8, batchnorm=policy)


def test_other_refusals() -> None:
    problem = digits_problem()
    data = problem.client_data(0)
    with pytest.raises(ConfigError, match="micro_batch=0: needs at least 1, or none"):
        subbit.fine_tune(problem.module, [data], data, method="fedavg", micro_batch=0)
    with pytest.raises(ConfigError, match="privacy: gradients are those of single examples; leave micro_batch out"):
        subbit.fine_tune(problem.module, [data], data, method="fedavg", privacy="per-step", micro_batch=4)
