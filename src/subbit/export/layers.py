"""Reduces layers in place: fewer outputs, fewer inputs, an added bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = nn.Linear | nn.Conv2d


class SelectedLinear(nn.Linear):
    """A linear layer that reads only some of its inputs: `columns` are their indices."""

    columns: Tensor

    def __init__(self, inputs: int, outputs: int, bias: bool, columns: Tensor) -> None:
        super().__init__(inputs, outputs, bias)
        self.register_buffer("columns", columns)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(torch.index_select(input, -1, self.columns), self.weight, self.bias)


def take_outputs_(layer: Layer, kept: Tensor) -> None:
    """Keep these rows (filters)."""
    layer.weight = _frozen(layer.weight[kept])
    if layer.bias is not None:
        layer.bias = _frozen(layer.bias[kept])
    _name_sizes(layer)


def take_inputs_(layer: Layer, kept: Tensor) -> None:
    """Keep these columns (channels)."""
    layer.weight = _frozen(layer.weight[:, kept])
    _name_sizes(layer)


def take_features_(norm: nn.Module, kept: Tensor) -> None:
    """Keep these features of a batch normalisation."""
    for name in ("weight", "bias"):
        if getattr(norm, name) is not None:
            setattr(norm, name, _frozen(getattr(norm, name)[kept]))
    for name in ("running_mean", "running_var"):
        norm.register_buffer(name, getattr(norm, name)[kept].clone())
    setattr(norm, "num_features", len(kept))  # noqa: B010 - a plain attribute, which torch's types do not know of


def add_to_bias_(layer: Layer, values: Tensor) -> None:
    """`values` are float64, so that many small terms are summed before rounding once."""
    before = torch.zeros(len(values)) if layer.bias is None else layer.bias.detach()
    layer.bias = _frozen((before.double() + values).float())


def select_columns(layer: nn.Linear, columns: Tensor) -> SelectedLinear:
    """The same layer restricted to these inputs; the others must have no effect."""
    selected = SelectedLinear(len(columns), layer.out_features, layer.bias is not None, columns)
    selected.weight = _frozen(layer.weight[:, columns])
    if layer.bias is not None:
        selected.bias = _frozen(layer.bias)
    return selected.train(layer.training)


def _frozen(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.detach().clone(), requires_grad=False)


def _name_sizes(layer: Layer) -> None:
    outputs, inputs = layer.weight.shape[:2]
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = outputs, inputs
    else:
        layer.out_channels, layer.in_channels = outputs, inputs
