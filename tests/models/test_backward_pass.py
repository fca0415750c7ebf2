"""The backward pass without torch's Python is torch's: gradients bit for bit, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from subbit.core.randomness import torch_randomness
from subbit.models import backward_pass
from subbit.models.backward_pass import run_backward

INPUTS, LABELS = torch.linspace(-2, 2, 60).reshape(12, 5), torch.arange(12) % 3


def network() -> nn.Module:
    with torch_randomness(0):
        return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def loss_of(module: nn.Module) -> Tensor:
    return functional.cross_entropy(module(INPUTS), LABELS)


def check_same_gradients(one: nn.Module, other: nn.Module) -> None:
    found, expected = ([parameter.grad for parameter in module.parameters()] for module in (one, other))
    for mine, others in zip(found, expected, strict=True):
        assert mine is not None
        assert others is not None
        assert torch.equal(mine, others)


def test_this_torch_has_what_makes_it_faster() -> None:
    """If not, every gradient is right, and a step of a small network takes longer than it should."""
    assert callable(backward_pass._ENGINE.run_backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_are_torchs_and_add_up(dtype: torch.dtype) -> None:
    ours, torchs = network().to(dtype), network().to(dtype)
    for _ in range(2):
        run_backward(functional.cross_entropy(ours(INPUTS.to(dtype)), LABELS))
        functional.cross_entropy(torchs(INPUTS.to(dtype)), LABELS).backward()
    check_same_gradients(ours, torchs)


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_that_are_computed_again_get_the_same_gradient(reentrant: bool) -> None:
    ours, torchs = network(), network()
    inputs = INPUTS.clone().requires_grad_()
    run_backward(functional.cross_entropy(checkpoint(ours, inputs, use_reentrant=reentrant), LABELS))
    loss_of(torchs).backward()  # type: ignore[no-untyped-call]
    check_same_gradients(ours, torchs)


class _Writes(torch.autograd.Function):
    """A backward that changes what it is given."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope.mul_(3)


def test_a_backward_that_writes_to_its_slope_changes_no_other_gradient() -> None:
    weight = torch.ones((), requires_grad=True)
    for _ in range(2):
        weight.grad = None
        run_backward(_Writes.apply(weight * 2))  # type: ignore[no-untyped-call]
        assert weight.grad == 6
    run_backward(weight * 1)
    assert weight.grad == 7


@pytest.mark.parametrize("loss", [torch.ones(2, requires_grad=True) * 1, torch.ones(()), torch.ones(2)])
def test_what_torch_refuses_is_refused(loss: Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"scalar outputs|does not require grad"):
        run_backward(loss)


class Counted(Tensor):
    """A tensor of a class that sees what is done to it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += func is Tensor.backward
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_loss_of_a_class_of_its_own_is_asked_itself() -> None:
    weight = torch.ones((), requires_grad=True)
    run_backward((weight * 2).as_subclass(Counted))
    assert Counted.calls == 1
    assert weight.grad == 2


def test_a_torch_without_the_engine_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_engine, without = network(), network()
    run_backward(loss_of(with_engine))
    monkeypatch.setattr(backward_pass, "_ENGINE", None)
    run_backward(loss_of(without))
    check_same_gradients(with_engine, without)
