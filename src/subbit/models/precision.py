"""Modules of lower precision: what is trained is float32, the rest stays as it is.

A layer with a selected float16 or bfloat16 parameter becomes float32 as a whole. Its inputs are converted when it is
called and its outputs back to what the layers after it expect; those of the head stay float32, for the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from subbit.core.errors import ModelError
from subbit.models.select import find_head

HALVES = (torch.float16, torch.bfloat16)


def widen_layers(module: nn.Module, names: Iterable[str]) -> None:
    """Make the layers that own these parameters float32, in place, where they are not."""
    parameters = dict(module.named_parameters())
    selected = [parameters[name] for name in names if parameters[name].dtype in HALVES]
    if not selected:
        return
    use_float32(module, owners_of(module, {id(parameter) for parameter in selected}), selected[0].dtype)


def use_float32(module: nn.Module, names: Iterable[str], others: torch.dtype) -> None:
    """Make these layers float32, in place, among others of this lower precision."""
    try:
        head: str | None = find_head(module)
    except ModelError:
        head = None
    for name in names:
        layer = module.get_submodule(name)
        layer.float()
        layer.register_forward_pre_hook(_widened, with_kwargs=True)
        if name and not f"{name}.".startswith(f"{head}."):
            layer.register_forward_hook(partial(_narrowed, others))


def unhook(layer: nn.Module, *others: Callable[..., Any]) -> None:
    """Remove what `use_float32` hooked to the layer, and these."""
    before, after = layer._forward_pre_hooks, layer._forward_hooks
    for key in [key for key, hook in before.items() if hook in (_widened, *others)]:
        del before[key]
        layer._forward_pre_hooks_with_kwargs.pop(key, None)
    for key in [key for key, hook in after.items() if isinstance(hook, partial) and hook.func is _narrowed]:
        del after[key]


def owners_of(module: nn.Module, wanted: set[int]) -> list[str]:
    """Names of the layers that own these parameters, with all that tied parameters bring along.

    A layer inside another one of them is converted with it.
    """
    while True:
        owners = [
            _user(module, name)
            for name, layer in module.named_modules()
            if any(id(parameter) in wanted for parameter in layer.parameters(recurse=False))
        ]
        reached = {id(parameter) for name in owners for parameter in module.get_submodule(name).parameters()}
        if reached <= wanted:
            return [name for name in dict.fromkeys(owners) if not any(_inside(name, other) for other in owners)]
        wanted = wanted | reached


def _user(module: nn.Module, name: str) -> str:
    """Attention of torch reads the weights of its last layer without calling it."""
    outer = name.rpartition(".")[0]
    return outer if name and isinstance(module.get_submodule(outer), nn.MultiheadAttention) else name


def _inside(name: str, other: str) -> bool:
    return name != other and (not other or name.startswith(f"{other}."))


def _widened(layer: nn.Module, args: Any, kwargs: Any) -> Any:
    return tree_map(_to_float32, (args, kwargs))


def _to_float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in HALVES else value


def _narrowed(dtype: torch.dtype, layer: nn.Module, inputs: Any, output: Any) -> Any:
    return tree_map(partial(_to_dtype, dtype), output)


def _to_dtype(dtype: torch.dtype, value: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.dtype == torch.float32 else value
