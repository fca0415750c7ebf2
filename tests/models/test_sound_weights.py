"""Weights from which nothing can be trained are refused before the run, by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import subbit
from subbit.core.errors import ModelError
from subbit.models.sound_weights import check_weights

CLIENTS = [(torch.rand(6, 4), torch.arange(6) % 2) for _ in range(2)]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_named(value: float) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with torch.no_grad():
        module[1].bias[1] = value
    with pytest.raises(ModelError, match=r"1\.bias contains NaN or infinity"):
        subbit.fine_tune(module, CLIENTS, test=CLIENTS[0], method="fedavg", rounds=1)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_layers_without_a_size_are_named() -> None:
    module = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))
    with pytest.raises(ModelError, match=r"0\.weight has no size yet"):
        subbit.fine_tune(module, CLIENTS, test=CLIENTS[0], method="fedavg", rounds=1)


def test_buffers_may_hold_infinity() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.full((2, 2), -torch.inf))
    check_weights(module)
