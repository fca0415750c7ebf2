"""Matrix products of linear layers by oneDNN, where torch's own use half of what the processor can do.

torch multiplies float32 matrices by MKL, which leaves AVX-512 unused on processors that are not Intel's: there oneDNN,
which torch has anyway for convolutions, is about twice as fast (docs/performance.md). Inside `fast_products`, calls of
`torch.nn.functional.linear` and of `torch.addmm` take it, forward and backward, in any module and without a change of
it. Results differ from torch's own in the last bits, as they do between two processors.

Small products stay with torch: calling oneDNN takes longer than they do. So does what torch computes inside one call,
such as `nn.MultiheadAttention` and LSTMs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from subbit.core.errors import ConfigError

SMALL = 2_000_000
"""Multiplications; measured."""
FEW = 64
"""Rows. With fewer, oneDNN takes longer to arrange the weights than to use them."""
PLAIN = (Tensor, nn.Parameter)
"""Others, such as quantised weights, know themselves how to multiply."""


def fast_products(enabled: bool) -> AbstractContextManager[Any]:
    return _OneDnn() if enabled else nullcontext()


class Products:
    """Linear layers by oneDNN, if `enabled`, for whatever shapes have a product that is large enough.

    Watching for products takes time in every call of torch. Whether there are any depends on the shapes alone, so where
    there was none, it is left out from then on.
    """

    def __init__(self, enabled: bool = False) -> None:
        self._enabled = enabled
        self._useless: set[Hashable] = set()

    @contextmanager
    def of(self, shapes: Hashable | None) -> Iterator[None]:
        """`shapes`: whatever decides which products there are; none: that is not known."""
        if not self._enabled or shapes in self._useless:
            yield
            return
        with _OneDnn() as watching:
            yield
        if not watching.used and shapes is not None:
            self._useless.add(shapes)


def choose_products(name: str, device: torch.device) -> bool:
    """Whether linear layers are computed by oneDNN."""
    if name == "onednn" and not (device.type == "cpu" and _there()):
        raise ConfigError(f"products=onednn: this torch has no oneDNN for {device.type}; use products=torch")
    return name != "torch" and device.type == "cpu" and _there() and (name == "onednn" or _pays())


@cache
def _there() -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def _pays() -> bool:
    """By the kind of processor, not by measurement: the same machine must always choose the same."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch._C.has_mkl and _vendor() not in ("GenuineIntel", "")


def _vendor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def _multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left right' + bias."""
    if left.numel() * right.shape[0] < SMALL:
        return F.linear(left, right, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    """x w' + b."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _multiply(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        # Second derivatives, which few need, go through this function again.
        multiply: Callable[..., Tensor] = _differentiable if torch.is_grad_enabled() else _multiply
        for_inputs = for_weight = for_bias = None
        rows = slope.reshape(-1, slope.shape[-1])
        if ctx.needs_input_grad[0]:
            for_inputs = multiply(slope, weight.t())
        if ctx.needs_input_grad[1]:
            columns = inputs.reshape(-1, inputs.shape[-1]).t()
            # oneDNN is faster with the shorter side first.
            long = weight.shape[0] > weight.shape[1]
            for_weight = multiply(columns, rows.t()).t() if long else multiply(rows.t(), columns)
        if ctx.needs_input_grad[2]:
            for_bias = rows.sum(0)
        return for_inputs, for_weight, for_bias


def _differentiable(left: Tensor, right: Tensor) -> Tensor:
    product: Tensor = _Linear.apply(left, right, None)  # type: ignore[no-untyped-call]
    return product


class _OneDnn(TorchFunctionMode):
    used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and _suits(*args, **(kwargs or {})):
            self.used = True
            inputs, weight, *bias = args
            return _apply(inputs, weight, bias[0] if bias else (kwargs or {}).get("bias"))
        if func is torch.addmm and not kwargs and len(args) == 3 and _suits(args[1], args[2].t(), args[0]):
            self.used = True
            return _apply(args[1], args[2].t(), args[0])
        return func(*args, **(kwargs or {}))


def _suits(inputs: Any, weight: Any, bias: Any = None) -> bool:
    if not (type(inputs) in PLAIN and type(weight) in PLAIN and (bias is None or type(bias) in PLAIN)):
        return False
    if inputs.dim() < 2 or weight.dim() != 2 or inputs.numel() < FEW * weight.shape[1]:
        return False
    if inputs.numel() * weight.shape[0] < SMALL:
        return False
    if not (inputs.dtype == weight.dtype == torch.float32) or (bias is not None and bias.dim() != 1):
        return False
    return not torch.is_autocast_enabled("cpu") and not torch._C._are_functorch_transforms_active()


def _apply(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not torch.is_grad_enabled():
        return _multiply(inputs, weight, bias)
    product: Tensor = _Linear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return product
