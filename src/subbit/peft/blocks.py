"""Finds the blocks of a transformer and the layers to which modules are added, for any model family."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from subbit.core.errors import ModelError
from subbit.models.select import find_blocks
from subbit.models.turned_layers import is_turned

ATTENTION = re.compile("attention|attn", re.IGNORECASE)
PROJECTIONS = (("q_proj", "v_proj"), ("query", "value"), ("q_lin", "v_lin"), ("qkv",))
"""Names of the layers that compute queries and values; a layer that computes queries, keys and values counts for
both."""
Linear = Any
"""`nn.Linear`, or transformers' `Conv1D`, which is a linear layer with a transposed weight."""


def is_linear(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) or is_turned(layer)


def outputs_of(layer: Linear) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.nf)


def transformer_blocks(module: nn.Module, purpose: str) -> dict[str, nn.Module]:
    """The blocks, first to last, by name. `purpose` is named in the error message."""
    name, count = find_blocks(module)
    blocks = {f"{name}.{number}".removeprefix("."): module.get_submodule(f"{name}.{number}") for number in range(count)}
    for block in blocks.values():
        if not any(ATTENTION.search(type(part).__name__) for part in block.modules()):
            raise ModelError(
                f"{purpose} needs a transformer: {type(block).__name__}, of which {type(module).__name__} is built, "
                "has no attention"
            )
    return blocks


def feed_forward_output(block: nn.Module) -> Linear:
    """The layer whose output, usually after dropout, is added to the residual stream at the end of a block."""
    layers = [layer for layer in block.modules() if is_linear(layer)]
    if not layers:
        raise ModelError(f"{type(block).__name__} has no linear layer: needs one at the end of its feed-forward part")
    return layers[-1]


def width_of(block: nn.Module) -> int:
    """Width of the residual stream."""
    return outputs_of(feed_forward_output(block))


def query_and_value(block: nn.Module) -> list[str]:
    """Names, relative to the block, of the linear layers that compute queries and values."""
    layers = [name for name, layer in block.named_modules() if isinstance(layer, nn.Linear)]
    for wanted in PROJECTIONS:
        found = [name for name in layers if name.rpartition(".")[2] in wanted]
        if len(found) == len(wanted):
            return found
    known = "; ".join(", ".join(names) for names in PROJECTIONS)
    raise ModelError(f"{type(block).__name__} has no linear layers for queries and values by a known name: {known}")
