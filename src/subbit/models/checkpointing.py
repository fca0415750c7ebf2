"""Activations computed again in the backward pass, block by block: less memory for more time.

Only `forward` of a block is replaced, so that what is hooked to the block runs once. transformers' own switch computes
the hooks again too, and with them the place where the cache of frozen layers enters (`subbit.models.prefix`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from subbit.core.errors import ConfigError, ModelError
from subbit.models.select import find_blocks

KEPT_BY_LAYERS = ("past_key_values", "past_key_value", "layer_past")
"""Where layers of transformers write keys and values for the next token, which training does not need."""


def checkpoint_blocks(module: nn.Module) -> None:
    """Compute the blocks of the module again in the backward pass, in place."""
    for block in _blocks(module):
        # In a copy of the module both arguments are those of the copy.
        vars(block)["forward"] = functools.partial(_checkpointed, block, block.forward)


def without_checkpoints(module: nn.Module) -> None:
    """The opposite, for whoever uses the module next."""
    for block in module.modules():
        if is_checkpointed(block):
            own = vars(block).pop("forward").args[1]
            if own != block.forward:  # It had one of its own before.
                vars(block)["forward"] = own


def is_checkpointed(module: nn.Module) -> bool:
    forward = vars(module).get("forward")
    return isinstance(forward, functools.partial) and forward.func is _checkpointed


def refuse_statistics(module: nn.Module) -> None:
    """Raises `ConfigError` for checkpointed blocks whose running statistics are trained."""
    for name, block in module.named_modules():
        if is_checkpointed(block) and any(isinstance(layer, _NormBase) for layer in block.modules()):
            raise ConfigError(
                f"checkpointing: {name!r} has batch normalisation, which with batchnorm=average would count every "
                "batch twice; use batchnorm=frozen or batch"
            )


def _blocks(module: nn.Module) -> list[nn.Module]:
    # Where nobody imported transformers nothing is a layer of it, and importing it takes seconds.
    layers = sys.modules.get("transformers.modeling_layers")
    kind: Any = getattr(layers, "GradientCheckpointingLayer", ())
    found = [each for each in module.modules() if isinstance(each, kind)]
    if found:
        return found
    try:
        name, _ = find_blocks(module)
    except ModelError as error:
        raise ConfigError(f"checkpointing: {str(error).partition(':')[0]}; leave checkpointing out") from None
    return list(module.get_submodule(name).children())


def _checkpointed(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    for name in KEPT_BY_LAYERS:
        if kwargs.get(name) is not None:
            kwargs[name] = None
    if kwargs.get("use_cache"):
        kwargs["use_cache"] = False
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
