"""Weights that are not trained, kept in lower precision.

    bfloat16   all frozen weights but those in a layer with trained ones, and batch normalisation. These layers take and
               give bfloat16; inside, layers with trained weights stay float32 (`subbit.models.precision`)
    int8       the weights of frozen linear layers, by torchao: 8 bits and one scale per output. What goes through a
               layer stays float32

Trained weights are not rounded. Rounding is the same in every process.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map

from subbit.core.errors import ConfigError
from subbit.models.precision import HALVES, owners_of, unhook, use_float32

NARROWED = "_frozen_weights"


def narrow_frozen(module: nn.Module, trained: Iterable[str], kind: str) -> None:
    """Keep what is not trained as `bfloat16` or `int8`, in place."""
    parameters = dict(module.named_parameters())
    wide = owners_of(module, {id(parameters[name]) for name in trained})
    fixed = {id(parameter) for name in wide for parameter in module.get_submodule(name).parameters()}
    count = _to_bfloat16(module, wide, fixed) if kind == "bfloat16" else _to_int8(module, fixed)
    if not count:
        what = "linear layer" if kind == "int8" else "layer"
        raise ConfigError(f"frozen_weights={kind}: no {what} here has only frozen weights; use frozen_weights=float32")
    vars(module)[NARROWED] = kind


def is_narrowed(module: nn.Module) -> bool:
    return NARROWED in vars(module)


def widened(module: nn.Module) -> nn.Module:
    """A plain float32 copy, with the values as they were rounded; a module that was not narrowed is returned itself."""
    if not is_narrowed(module):
        return module
    copied = copy.deepcopy(module)
    del vars(copied)[NARROWED]
    for layer in copied.modules():
        unhook(layer, _narrow_inputs)
        if isinstance(layer, nn.Linear) and is_quantised(layer.weight):
            layer.weight = nn.Parameter(layer.weight.dequantize(), requires_grad=False)
            vars(layer).pop("forward")
    return copied.float()


def is_quantised(tensor: Tensor) -> bool:
    return is_traceable_wrapper_subclass(tensor) and hasattr(tensor, "dequantize")


def _to_bfloat16(module: nn.Module, wide: list[str], fixed: set[int]) -> int:
    """Returns the number of layers."""
    norms = [name for name, layer in module.named_modules() if isinstance(layer, _NormBase)]
    inside = tuple(f"{name}." for name in wide if name)
    wide = [*wide, *(name for name in norms if not ("" in wide or f"{name}.".startswith(inside)))]
    fixed = fixed | {id(parameter) for name in norms for parameter in module.get_submodule(name).parameters()}
    count = 0
    for layer in module.modules():
        own = [each for each in layer.parameters(recurse=False) if id(each) not in fixed]
        for parameter in own:
            if parameter.dtype == torch.float32:
                parameter.data = parameter.data.bfloat16()
        if own:
            layer.register_forward_pre_hook(_narrow_inputs, with_kwargs=True)
            count += 1
    if count:
        use_float32(module, wide, torch.bfloat16)
    return count


def _narrow_inputs(layer: nn.Module, args: Any, kwargs: Any) -> Any:
    # The weights now: a copy of the module may have become another type.
    first = next(layer.parameters(recurse=False))
    if first.dtype not in HALVES:
        return None
    return tree_map(functools.partial(_float32_to, first.dtype), (args, kwargs))


def _float32_to(dtype: torch.dtype, value: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.dtype == torch.float32 else value


def _to_int8(module: nn.Module, fixed: set[int]) -> int:
    """Returns the number of layers."""
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise ConfigError(
            "frozen_weights=int8 needs torchao, which is not installed: pip install 'subbit[int8]', or use "
            "frozen_weights=bfloat16"
        ) from None
    users: dict[int, int] = {}
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1

    def chosen(layer: nn.Module, name: str = "") -> bool:
        # Exactly this class: others may use the weight otherwise. A tied one is also used by somebody else.
        weight = layer.weight if type(layer) is nn.Linear else None
        return weight is not None and id(weight) not in fixed and users[id(weight)] == 1

    layers = [layer for layer in module.modules() if chosen(layer)]
    quantize_(module, Int8WeightOnlyConfig(), filter_fn=chosen)
    for layer in layers:
        vars(layer)["forward"] = functools.partial(_linear, layer)
    return len(layers)


def _linear(layer: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = _FrozenLinear.apply(inputs, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return outputs


class _FrozenLinear(torch.autograd.Function):
    """Keeps the 8 bits for the backward pass: autograd would keep every weight as the float32 that it computed with."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        return nn.functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient @ ctx.weight.dequantize().to(gradient.dtype), None, None
