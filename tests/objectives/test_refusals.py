"""What cannot work is one clear line, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import subbit
from subbit.core.errors import SubbitError
from tests.objectives.own_problems import Stored, mean_error, numbers, regressor

INPUTS, LABELS = numbers(20, 0)
PAIR = (INPUTS, LABELS)
REGRESSION = {"objective": "regression"}
TWO = torch.zeros(20, 4, 4, dtype=torch.int64)


class Torn(Stored):
    def __getitem__(self, place: int) -> Any:
        raise KeyError("no such scan")


def dropping(rows: list[Any]) -> Any:
    return torch.stack([row[0] for row in rows[:3]]), torch.stack([row[1] for row in rows[:3]])


def loss_of(function: Callable[[Tensor, Tensor], Any]) -> dict[str, Any]:
    return {"loss": function}


def score_of(function: Callable[[Tensor, Tensor], Any]) -> dict[str, Any]:
    return {"loss": mean_error, "score": function}


STORED = Stored(*PAIR)
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "float labels of classes": (PAIR, {}, "objective=classification needs int64"),
    "labels of three dimensions": ((INPUTS, torch.zeros(20, 2, 2)), REGRESSION, r"found labels .*\[20, 2, 2\]"),
    "labels that are not finite": ((INPUTS, LABELS * math.nan), REGRESSION, "labels: found nan"),
    "texts as labels": (Stored(INPUTS, ["a"] * 20), REGRESSION, "labels: found str"),
    "no labels": ({"input": INPUTS}, REGRESSION, "found no labels; objective=regression"),
    "a label of 2": ((INPUTS, torch.full((20, 1), 2.0)), {"objective": "multi-label"}, "found 2; .* of 0 and 1"),
    "another number of labels": ((INPUTS, torch.zeros(20, 3)), {"objective": "multi-label"}, "one number for each"),
    "no picture": ((INPUTS, TWO), {"objective": "segmentation"}, r"needs \[n, classes, height, width\]"),
    "a negative class": ((INPUTS, TWO - 1), {"objective": "segmentation"}, "found a negative class"),
    "nothing to read": ({"input": INPUTS}, {"objective": "language"}, "neither labels nor input_ids"),
    "outputs of another shape": ((INPUTS, torch.zeros(20, 2)), REGRESSION, "needs the same shape"),
    "a loss that is nan": (PAIR, loss_of(lambda outputs, labels: outputs.mean() * math.nan), "loss: found nan"),
    "a loss for each": (PAIR, loss_of(lambda outputs, labels: outputs.squeeze(1) - labels), "needs one floating"),
    "a loss of Python": (PAIR, loss_of(lambda outputs, labels: 0.5), "loss: found float; needs a tensor"),
    "a loss without gradient": (PAIR, loss_of(lambda outputs, labels: labels.mean()), "without a gradient"),
    "a loss that raises": (PAIR, loss_of(lambda outputs, labels: outputs @ labels), "loss: RuntimeError"),
    "a loss that is a word": (PAIR, {"loss": "mse"}, "need functions"),
    "a loss and an objective": (PAIR, {"loss": mean_error, **REGRESSION}, "either an objective"),
    "a lambda for workers": (PAIR, {"workers": 2, **loss_of(lambda outputs, labels: outputs.mean())}, "top level"),
    "a score alone": (PAIR, {"score": mean_error}, "give loss= too"),
    "a score of another length": (PAIR, score_of(lambda outputs, labels: torch.ones(3)), r"score returns \[3\] for 2"),
    "a score that is nan": (PAIR, score_of(lambda outputs, labels: labels * math.nan), "score: .* not finite"),
    "a direction without a score": (PAIR, {"higher_is_better": True, **REGRESSION}, "only with loss="),
    "a collate that drops": (STORED, {"collate": dropping, **REGRESSION}, "found a batch of 3 examples for 16 items"),
    "a collate that raises": (STORED, {"collate": lambda rows: 1 / 0, **REGRESSION}, "collate: ZeroDivisionError"),
    "a collate of nothing": (STORED, {"collate": lambda rows: None, **REGRESSION}, "found a batch of type NoneType"),
    "a collate that is a word": (STORED, {"collate": "pad", **REGRESSION}, "collate: found str"),
    "items that cannot be read": (Torn(*PAIR), REGRESSION, "example 0 cannot be read: KeyError"),
    "items of three": ([(1, 2, 3)] * 4, REGRESSION, "need a pair"),
    "augmented features": (PAIR, {"augment": "flip", **REGRESSION}, "need images"),
    "augmented dicts": ({"input": INPUTS, "labels": LABELS}, {"augment": "flip", **REGRESSION}, "one tensor"),
    "an unknown augmentation": (PAIR, {"augment": "flop", **REGRESSION}, "did you mean 'flip'"),
    "a fitted head": (PAIR, {"head": "probe", **REGRESSION}, "head=probe fits a classifier"),
    "no tests of clients": (PAIR, {"method": "standalone", **REGRESSION}, "client_tests"),
    "names of no argument": ({"x": INPUTS, "labels": LABELS}, REGRESSION, "unexpected keyword argument 'x'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_one_line_and_no_folder(name: str, tmp_path: Path) -> None:
    data, values, words = WRONG[name]
    with pytest.raises(SubbitError, match=words) as caught:
        subbit.fine_tune(
            regressor(), [data], data, **{"method": "fedavg", "rounds": 1, "folder": tmp_path / "mine", **values}
        )
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_classes_that_only_show_when_they_are_read() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    good = Stored(INPUTS, torch.zeros(20, dtype=torch.int64))
    late = Stored(INPUTS, torch.tensor([0] * 13 + [7] + [0] * 6))
    with pytest.raises(SubbitError, match="found the label 7; there are 2 classes"):
        subbit.fine_tune(module, [good], late, method="fedavg", rounds=1)
    with pytest.warns(UserWarning, match="client 1 never answered.*found the label 7"):
        subbit.fine_tune(module, [good, late, good], good, method="fedavg", rounds=2)


@pytest.mark.parametrize(
    ("clients", "words"),
    [({"a": PAIR}, "need a list"), ("data", "need a list"), ([PAIR, STORED], "set in_memory")],
)
def test_clients_are_a_list_of_data_sets_of_one_kind(clients: Any, words: str) -> None:
    with pytest.raises(SubbitError, match=words):
        subbit.fine_tune(regressor(), clients, PAIR, objective="regression", method="fedavg", rounds=1)


def test_labels_of_clients_have_one_shape() -> None:
    clients = [(INPUTS, torch.zeros(20, 1)), (INPUTS, torch.zeros(20, 2))]
    with pytest.raises(SubbitError, match=r"different shapes or types: labels float32 \[1\] and labels float32 \[2\]"):
        subbit.fine_tune(regressor(), clients, clients[0], objective="multi-label", method="fedavg", rounds=1)
    with pytest.raises(SubbitError, match=r"test: found labels float32 \[2\], but the clients hold float32 \[1\]"):
        subbit.fine_tune(regressor(), clients[:1], clients[1], objective="multi-label", method="fedavg", rounds=1)
