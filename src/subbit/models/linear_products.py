"""Matrix products of linear layers by oneDNN, where torch's own use half of what the processor can do.

torch multiplies float32 matrices by MKL, which leaves AVX-512 unused on processors that are not Intel's: there oneDNN,
which torch has anyway for convolutions, is faster, about twice as fast on those that compute 512 bits at once
(docs/performance.md). Inside `fast_products`, calls of `torch.nn.functional.linear` and of `torch.addmm` take it,
forward and backward, in any module and without a change of it. Results differ from torch's own in the last bits, as
they do between two processors.

Small products stay with torch: calling oneDNN takes longer than they do. So does what torch computes inside one call,
such as `nn.MultiheadAttention` and LSTMs.

The two functions themselves are replaced while a network runs. A mode of `torch.overrides` would do the same by looking
at every call of torch, which takes longer than a small network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subbit.core.errors import ConfigError

SMALL = 2_000_000
"""Multiplications; measured."""
FEW = 64
"""Rows. With fewer, oneDNN takes longer to arrange the weights than to use them."""
PLAIN = (Tensor, nn.Parameter)
"""Others, such as quantised weights, know themselves how to multiply."""
WHOLE = [name for name in ("multi_head_attention_forward", "linear_cross_entropy") if hasattr(F, name)]
"""Functions of torch that call `linear` inside."""
_linear, _addmm = F.linear, torch.addmm


def fast_products(enabled: bool) -> AbstractContextManager[Any]:
    return _ONEDNN if enabled else nullcontext()


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
        return _linear(left, right, bias)
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


class _OneDnn(threading.local):
    """Replaces the functions for the thread that enters; others meanwhile find them to be torch's own."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            _replace(1)

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            _replace(-1)


_ONEDNN = _OneDnn()
_lock = threading.Lock()
_inside = 0
"""Number of threads inside."""


def _replace(change: int) -> None:
    global _inside
    with _lock:
        _inside += change
        for module, name, function in _REPLACED if _inside else _ORIGINAL:
            setattr(module, name, function)


def _fast_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if _ONEDNN.depth and _suits(input, weight, bias):
        return _apply(input, weight, bias)
    return _linear(input, weight, bias)


def _fast_addmm(*args: Any, **kwargs: Any) -> Tensor:
    if _ONEDNN.depth and not kwargs and len(args) == 3 and _suits(args[1], args[2].t(), args[0]):
        return _apply(args[1], args[2].t(), args[0])
    return _addmm(*args, **kwargs)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        depth, _ONEDNN.depth = _ONEDNN.depth, 0
        try:
            return function(*args, **kwargs)
        finally:
            _ONEDNN.depth = depth

    return call


_ORIGINAL = [(F, "linear", _linear), (torch, "addmm", _addmm), *((F, name, getattr(F, name)) for name in WHOLE)]
_REPLACED = [
    (F, "linear", _fast_linear),
    (torch, "addmm", _fast_addmm),
    *((F, name, _as_it_is(getattr(F, name))) for name in WHOLE),
]


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
