"""Linear layers computed by oneDNN: the same network, forward and backward, in any module."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from tests.problems import digits_problem, mlp, settings
from torch import Tensor

from subbit.core.errors import ConfigError
from subbit.models import linear_products
from subbit.models.linear_products import SMALL, choose_products, fast_products
from subbit.runtime.run import run_job

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not linear_products._there(), reason="this torch has no oneDNN")


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all products by oneDNN."""
    found: list[tuple[int, ...]] = []
    original = linear_products._multiply

    def watched(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        found.append((*left.shape, right.shape[0]))
        return original(left, right, bias)

    monkeypatch.setattr(linear_products, "_multiply", watched)
    return found


def values_and_slopes(inputs: Tensor, weight: Tensor, bias: Tensor | None, fast: bool) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_(True) for tensor in (inputs, weight, bias) if tensor is not None]
    with fast_products(fast):
        outputs = F.linear(*leaves)
    outputs.square().sum().backward()  # type: ignore[no-untyped-call]
    return [outputs.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("shape", [(128, 256, 128), (64, 2, 128, 512), (300, 130, 70)], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...], has_bias: bool) -> None:
    *rows, inputs, outputs = shape
    given = torch.randn(*rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs) if has_bias else None
    expected, found = (values_and_slopes(*given, fast) for fast in (False, True))
    assert len(found) == 3 + has_bias
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_second_derivatives(products: list[tuple[int, ...]]) -> None:
    """f = sum (x w')^2 / 2 has df/dw = w x' x, so the gradient of its sum by w is the column sums of x' x."""
    inputs, weight = torch.randn(256, 128), torch.randn(128, 128, requires_grad=True)
    with fast_products(True):
        loss = F.linear(inputs, weight).square().sum() / 2
    (slope,) = torch.autograd.grad(loss, weight, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), weight)
    assert products
    torch.testing.assert_close(second, (inputs.T @ inputs).sum(0).expand(128, -1), rtol=1e-3, atol=1e-2)


def test_small_products_and_other_types_stay_with_torch(products: list[tuple[int, ...]]) -> None:
    large, small = torch.randn(2048, 1024), torch.randn(4, 16)
    assert small.numel() * 16 < SMALL
    with fast_products(True):
        F.linear(small, torch.randn(16, 16))
        F.linear(large[:20], torch.randn(1024, 1024))
        F.linear(large.double(), torch.randn(16, 1024).double())
        with torch.autocast("cpu", torch.bfloat16):
            F.linear(large, torch.randn(16, 1024))
        torch.func.vmap(lambda weight: F.linear(large, weight))(torch.randn(2, 16, 1024))
        assert not products
        F.linear(large, torch.randn(16, 1024))
        torch.addmm(torch.randn(16), large, torch.randn(1024, 16))
    F.linear(large, torch.randn(16, 1024))
    assert products == [(2048, 1024, 16)] * 2


def test_rows_do_not_depend_on_the_other_rows() -> None:
    """What the cache of frozen layers needs to be exact for all batch sizes."""
    rows, weight = torch.randn(64, 65, 96), torch.randn(384, 96)
    with fast_products(True):
        whole = F.linear(rows, weight)
        assert all(torch.equal(F.linear(rows[:count], weight), whole[:count]) for count in (2, 5, 17, 32, 33))


def test_attention_of_torch_is_one_call_and_stays_with_torch(products: list[tuple[int, ...]]) -> None:
    layer, rows = torch.nn.MultiheadAttention(256, 4), torch.randn(64, 4, 256)
    with fast_products(True):
        layer(rows, rows, rows)
        assert not products
        F.linear(rows, torch.randn(256, 256))
    assert products == [(64, 4, 256, 256)]


def test_the_functions_are_replaced_for_one_thread_and_only_inside(products: list[tuple[int, ...]]) -> None:
    own, large, weight = (F.linear, torch.addmm), torch.randn(2048, 1024), torch.randn(16, 1024)
    with fast_products(True), fast_products(True):
        other = threading.Thread(target=F.linear, args=(large, weight))
        other.start()
        other.join()
        assert not products
        assert F.linear is not own[0]
    assert (F.linear, torch.addmm) == own
    with pytest.raises(RuntimeError), fast_products(True):
        F.linear(large, weight[:, :-1])
    assert (F.linear, torch.addmm) == own


def test_the_key() -> None:
    assert not choose_products("torch", CPU)
    assert choose_products("onednn", CPU)
    assert choose_products("auto", CPU) == linear_products._pays()
    assert not choose_products("auto", torch.device("meta"))
    with pytest.raises(ConfigError, match="products=torch"):
        choose_products("onednn", torch.device("meta"))


def test_a_run_of_either_kind(products: list[tuple[int, ...]]) -> None:
    by_torch, by_onednn = (
        run_job(
            digits_problem(mlp(512)), settings(method="fedavg", rounds=2, batch_size=64, products=kind, head="keep")
        ).summary
        for kind in ("torch", "onednn")
    )
    assert products
    assert by_onednn["total_bytes"] == by_torch["total_bytes"]
    assert by_onednn["accuracy"] == pytest.approx(by_torch["accuracy"], abs=0.02)
