"""Networks that were trained before end no lower, with default keys: BatchNorm, attention, LSTM; two classes a client.

They are trained on digits and then go on with other digits in pale grey.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_randomness
from subbit.data import Examples, load_dataset
from subbit.runtime.problem import Problem
from subbit.runtime.run import run_job
from tests.problems import conv_net, digits_problem, settings, small_vit


class RowLstm(nn.Module):
    """Reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.float().flatten(1).view(-1, 8, 8) / 255
        outputs: Tensor = self.head(self.lstm(rows)[0][:, -1])
        return outputs


def row_lstm() -> nn.Module:
    with torch_randomness(4):
        return RowLstm()


BEFORE, AFTER = 600, 400
NETWORKS: dict[str, Callable[[], nn.Module]] = {"conv": conv_net, "vit": small_vit, "lstm": row_lstm}


def pale(examples: Examples) -> Examples:
    return replace(examples, inputs=(examples.tensor * 0.5 + 64).to(examples.tensor.dtype))


def digits(module: nn.Module) -> Problem:
    """With all test examples: a hundred say little about a point."""
    dataset = load_dataset("digits")
    return replace(digits_problem(module), train=dataset.train, test=dataset.test)


@cache
def trained_before(name: str) -> Problem:
    """A trained network and the job that follows: two classes a client."""
    torch.set_num_threads(1)
    whole = digits(NETWORKS[name]())
    first = replace(whole, parts=(np.arange(BEFORE),))
    words = {"select": "all", "learning_rate": 0.003, "batch_size": 16, "rounds": 8, "epochs": 3, "clients": 1}
    module = run_job(first, settings(method="fedavg", head="keep", batchnorm="average", **words)).module
    labels = whole.examples.labels.numpy()
    rest = np.arange(BEFORE, BEFORE + AFTER)
    parts = tuple(rest[labels[rest] // 2 == pair] for pair in range(5))
    test = pale(whole.some_tests(len(whole.test)))
    return replace(whole, module=module, train=pale(whole.examples), test=test, parts=parts, pretrained=True)


@pytest.mark.parametrize("method", ["subbit", "subbit-masks"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_end_is_at_most_a_point_below_the_start(name: str, method: str) -> None:
    problem = trained_before(name)
    result = run_job(problem, settings(method=method, head="lda", clients=5, rounds=4))
    summary, changed = result.summary, dict(result.module.named_parameters())
    moved = [name for name, tensor in problem.module.named_parameters() if not torch.equal(tensor, changed[name])]
    assert len(moved) > 3, "something was trained besides the head"
    assert summary["score_before"] > 0.4
    assert summary["score"] >= summary["score_before"] - 0.01
