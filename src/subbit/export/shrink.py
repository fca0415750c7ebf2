"""Removes the parts of a network that a mask has emptied: a smaller, dense network with the same outputs.

For every link (`subbit.export.links`) between a layer and its reader:

    a unit that is not read      all weights that read it are zero       is removed
    a unit that is constant      its own weights are all zero            is removed, and its contribution is added to
                                                                         the reader's bias

A convolution with padding sees a constant map surrounded by zeros, which a bias cannot replace. There all constant
units are merged into one: a unit of value c with weights W_1 c_1 / c + W_2 c_2 / c + ... replaces all of them. Removing
units may leave others unread or constant, so this is repeated until nothing changes, also with the hidden units of
LSTMs (`subbit.export.shrink_lstm`). Finally, a linear layer that reads only some of its inputs, where these cannot be
removed themselves (pixels), selects just those.

Filters are removed in multiples of four: onnxruntime has no fast convolution for other numbers of channels, which costs
more than a few unused filters.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from subbit.export.layers import Layer, add_to_bias_, select_columns, take_features_, take_inputs_, take_outputs_
from subbit.export.links import Link, Structure, find_links
from subbit.export.shrink_lstm import shrink_lstm_

ALIGNMENT = 4
LEAST_UNREAD = 0.125
"""Minimum share of unread inputs for which selecting the others pays off."""


@dataclass(frozen=True)
class Shrunk:
    module: nn.Module
    widths: dict[str, tuple[int, int]]
    """By layer: outputs before and after, if changed."""
    inputs: dict[str, tuple[int, int]]
    """By layer: inputs before and after, if it now selects them."""
    left: dict[str, str] = field(default_factory=dict)
    """Layers whose empty outputs were kept, and why."""


def shrink(module: nn.Module, example: Tensor, alignment: int = ALIGNMENT) -> Shrunk:
    """A smaller copy of a module in evaluation mode; `example` is a batch of at least two inputs.

    A convolution keeps a multiple of `alignment` filters.
    """
    return shrink_traced(module, find_links(module, example), alignment)


@torch.no_grad()
def shrink_traced(module: nn.Module, structure: Structure, alignment: int = ALIGNMENT) -> Shrunk:
    small = copy.deepcopy(module)
    small.zero_grad(set_to_none=True)
    before = _widths(small)
    changed = True
    while changed:
        changed = any(_shrink_link(small, link, alignment) for link in structure.links)
        changed = any(_shrink_lstm(small, *names) for names in structure.lstms) or changed
    read = {link.consumer for link in structure.links} | {reader for _, reader in structure.lstms}
    inputs = _pick_inputs(small, read)
    after = _widths(small)
    widths = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    left = {}
    for name, reason in structure.ends.items():
        empty = int((_flat_weight(_layers(small)[name]) == 0).all(1).sum())
        if empty and reason != "its output is the network's":
            left[name] = f"{empty} empty outputs stay: {reason}"
    return Shrunk(small, widths, inputs, left)


def _shrink_link(module: nn.Module, link: Link, alignment: int) -> bool:
    producer, consumer = _layer(module, link.producer), _layer(module, link.consumer)
    units = len(producer.weight)
    # [outputs of the consumer, units, weights per unit]
    reading = consumer.weight.detach().reshape(len(consumer.weight), units, -1).double()
    unread = (reading == 0).all(0).all(1)
    constant = (_flat_weight(producer) == 0).all(1)
    biases = torch.zeros(units) if producer.bias is None else producer.bias.detach()
    values = link.constants(module, biases).double()
    told = constant & ~unread & (values != 0)
    goes = unread | constant
    stays = int(torch.where(told, values.abs(), -1.0).argmax())
    if link.padded and told.any():
        goes[stays] = False
    goes = _in_step(goes, alignment if isinstance(producer, nn.Conv2d) else 1)
    if not goes.any():
        return False
    if link.padded and told.any():
        shares = torch.where(told, values / values[stays], 0.0)
        everything = torch.einsum("oup,u->op", reading, shares)
        reading[:, told] = 0
        reading[:, stays] = everything
    elif told.any():
        add_to_bias_(consumer, torch.einsum("oup,u->o", reading, torch.where(told, values, 0.0)))
        reading[:, told] = 0
    consumer.weight.copy_(reading.reshape(consumer.weight.shape))
    kept = (~goes).nonzero()[:, 0]
    take_outputs_(producer, kept)
    for norm in link.norms:
        take_features_(module.get_submodule(norm), kept)
    # In a linear layer after flattening, the positions of each unit are consecutive.
    columns = (kept[:, None] * link.places + torch.arange(link.places)).reshape(-1)
    take_inputs_(consumer, columns)
    return True


def _in_step(goes: Tensor, alignment: int) -> Tensor:
    """Keep some removable units, so that a multiple of `alignment` remains, and at least one."""
    left = int((~goes).sum())
    wanted = min(len(goes), max(1, -(-left // alignment)) * alignment)
    goes = goes.clone()
    goes[goes.nonzero()[: wanted - left, 0]] = False
    return goes


def _pick_inputs(module: nn.Module, read: set[str]) -> dict[str, tuple[int, int]]:
    """Restrict linear layers that no link reaches to the inputs that they read."""
    picked = {}
    for name, layer in _layers(module).items():
        if type(layer) is nn.Linear and name and name not in read:
            columns = (layer.weight != 0).any(0).nonzero()[:, 0]
            if 0 < len(columns) <= (1 - LEAST_UNREAD) * layer.in_features:
                owner, _, own_name = name.rpartition(".")
                setattr(module.get_submodule(owner), own_name, select_columns(layer, columns))
                picked[name] = (layer.in_features, len(columns))
    return picked


def _shrink_lstm(module: nn.Module, name: str, reader: str) -> bool:
    lstm, layer = module.get_submodule(name), _layer(module, reader)
    return isinstance(lstm, nn.LSTM) and isinstance(layer, nn.Linear) and shrink_lstm_(lstm, layer)


def _widths(module: nn.Module) -> dict[str, int]:
    """Outputs of every layer."""
    recurrent = {name: layer.hidden_size for name, layer in module.named_modules() if isinstance(layer, nn.LSTM)}
    return {name: len(layer.weight) for name, layer in _layers(module).items()} | recurrent


def _layers(module: nn.Module) -> dict[str, Layer]:
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)}


def _layer(module: nn.Module, name: str) -> Layer:
    layer = module.get_submodule(name)
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise TypeError(f"{name} is neither a linear layer nor a convolution")
    return layer


def _flat_weight(layer: Layer) -> Tensor:
    return layer.weight.detach().flatten(1)
