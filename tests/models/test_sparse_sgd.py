"""SparseSGDM: torch's SGD where nothing is frozen, by hand where something is, and bits that never move."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from subbit.core.errors import ConfigError
from subbit.models.sparse_sgd import SparseSGDM

Policy = Literal["none", "buffer", "update"]
POLICIES: list[Policy] = ["none", "buffer", "update"]
SIZE = 12


def frozen_at(*places: int, size: int = 2) -> Tensor:
    frozen = torch.zeros(size, dtype=torch.bool)
    frozen[list(places)] = True
    return frozen


def bits(vector: Tensor) -> list[int]:
    """-0.0 equals 0.0, and NaN not even itself: bits are what stays."""
    found: list[int] = vector.numpy().view(np.uint32).tolist()
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_nothing_frozen_it_is_the_sgd_of_torch(policy: Policy, weight_decay: float, momentum: float) -> None:
    generator = torch.Generator().manual_seed(5)
    start, gradients = torch.randn(SIZE, generator=generator), torch.randn(6, SIZE, generator=generator)
    ours, theirs = start.clone(), start.clone()
    optimizers: list[torch.optim.Optimizer] = [
        SparseSGDM(ours, torch.zeros(SIZE, dtype=torch.bool), 0.3, momentum, weight_decay, policy),
        torch.optim.SGD([theirs], lr=0.3, momentum=momentum, weight_decay=weight_decay),
    ]
    for gradient in gradients:
        for vector, optimizer in zip((ours, theirs), optimizers, strict=True):
            vector.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("none", [-3.0, -2.0]), ("buffer", [-2.0, -2.0]), ("update", [-2.0, -3.0])],
)
def test_two_steps_by_hand(policy: Policy, expected: list[float]) -> None:
    """Rate 1, momentum 1/2, gradient (2, 2) twice; place 1 is frozen in the first step, place 0 in the second.

    none    v = (2, 0), w = (-2, 0); v = (1, 2),         w = (-3, -2): place 0 moves on by inertia
    buffer  v = (2, 0), w = (-2, 0); v = (0, 2),         w = (-2, -2)
    update  v = (2, 2), w = (-2, 0); v = (3, 1 + 2 = 3), w = (-2, -3): place 1 had gathered momentum
    """
    trained = torch.zeros(2)
    optimizer = SparseSGDM(trained, frozen_at(1), 1.0, 0.5, mask_momentum=policy)
    for frozen in (frozen_at(1), frozen_at(0)):
        optimizer.freeze(frozen)
        trained.grad = torch.tensor([2.0, 2.0])
        optimizer.step()
    assert trained.tolist() == expected


def test_weight_decay_does_not_reach_frozen_places() -> None:
    """Gradient zero, decay 1/2, rate 1: an active weight halves, a frozen one stays."""
    for policy in POLICIES:
        trained = torch.tensor([8.0, 8.0])
        trained.grad = torch.zeros(2)
        SparseSGDM(trained, frozen_at(0), 1.0, 0.9, 0.5, policy).step()
        assert trained.tolist() == [8.0, 4.0]


values = st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=SIZE, max_size=SIZE)
masks = st.lists(st.booleans(), min_size=SIZE, max_size=SIZE)


@given(
    start=values, steps=st.lists(st.tuples(values, masks), min_size=1, max_size=5), decay=st.sampled_from([0.0, 0.5])
)
@pytest.mark.parametrize("policy", ["buffer", "update"])
def test_a_place_keeps_its_bits_in_every_step_in_which_it_is_frozen(
    policy: Policy, start: list[float], steps: list[tuple[list[float], list[bool]]], decay: float
) -> None:
    """Whatever the gradients are, infinite and not numbers included, and however the mask changes."""
    trained = torch.tensor(start, dtype=torch.float32)
    optimizer = SparseSGDM(trained, torch.zeros(SIZE, dtype=torch.bool), 0.1, 0.9, decay, policy)
    for gradient, frozen in steps:
        before = bits(trained)
        trained.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.freeze(torch.tensor(frozen))
        optimizer.step()
        after = bits(trained)
        assert [before[place] for place in range(SIZE) if frozen[place]] == [
            after[place] for place in range(SIZE) if frozen[place]
        ]


@given(start=values, gradients=st.lists(values, min_size=1, max_size=4), frozen=masks)
def test_under_one_mask_the_paper_s_policy_freezes_as_well(
    start: list[float], gradients: list[list[float]], frozen: list[bool]
) -> None:
    trained, mask = torch.tensor(start, dtype=torch.float32), torch.tensor(frozen)
    before = bits(trained[mask])
    optimizer = SparseSGDM(trained, mask, 0.1, 0.9, 0.5, "none")
    for gradient in gradients:
        trained.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
    assert bits(trained[mask]) == before


def test_masks_and_policies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"need torch.bool \[2\]"):
        SparseSGDM(torch.zeros(2), frozen_at(0, size=3), 0.1)
    with pytest.raises(ConfigError, match=r"need torch.bool"):
        SparseSGDM(torch.zeros(2), torch.zeros(2), 0.1)
    with pytest.raises(ConfigError, match="there are none, buffer, update"):
        SparseSGDM(torch.zeros(2), frozen_at(0), 0.1, mask_momentum="some")  # type: ignore[arg-type]
