"""Removes hidden units from an LSTM: those that nothing needs, and those that are always zero.

    always zero   the cell gate's rows read nothing but zeros and have no bias: g = tanh(0), so c and h stay 0
    needed        read by the layer behind the LSTM, by a gate of a needed unit, or by one of the next layer
                  (and not always zero)

A unit that is neither is removed. All layers of a `nn.LSTM` have the same width, so as many units stay in each as in
the layer that needs most. Other units without weights follow a course of their own over time, which no bias of their
readers can replace: they stay.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subbit.export.layers import take_inputs_

GATES, CELL = 4, 2  # Blocks of rows: input, forget, cell and output gate.


def shrink_lstm_(lstm: nn.LSTM, reader: nn.Linear) -> bool:
    """In place; returns whether anything was removed. The initial state is zero, and only `reader` reads the LSTM."""
    zero = _always_zero(lstm)
    needed = _needed(lstm, (reader.weight != 0).any(0), zero)
    width = max(1, *(int(units.sum()) for units in needed))
    if width == lstm.hidden_size:
        return False
    kept = [_filled(units, width) for units in needed]
    for layer in range(lstm.num_layers):
        rows = torch.cat([kept[layer] + gate * lstm.hidden_size for gate in range(GATES)])
        for name in _names(lstm, layer):
            values = getattr(lstm, name).detach()[rows]
            if name.startswith("weight_hh"):
                values = values[:, kept[layer]]
            elif name.startswith("weight_ih") and layer:
                values = values[:, kept[layer - 1]]
            setattr(lstm, name, nn.Parameter(values.clone(), requires_grad=False))
    lstm.hidden_size = width
    take_inputs_(reader, kept[-1])
    return True


def _always_zero(lstm: nn.LSTM) -> list[Tensor]:
    """By layer, whether h of each unit is zero at all times: by induction, since it is zero at the start."""
    size = lstm.hidden_size
    found: list[Tensor] = []
    cell = slice(CELL * size, (CELL + 1) * size)
    for layer in range(lstm.num_layers):
        inputs = getattr(lstm, f"weight_ih_l{layer}").detach()[cell] != 0
        read = inputs[:, ~found[-1]] if found else inputs
        zero = ~read.any(1)
        if lstm.bias:
            zero &= (getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")).detach()[cell] == 0
        recurrent = getattr(lstm, f"weight_hh_l{layer}").detach()[cell] != 0
        while True:
            reads_others = (recurrent & ~zero).any(1)
            if not bool((zero & reads_others).any()):
                break
            zero &= ~reads_others
        found.append(zero)
    return found


def _needed(lstm: nn.LSTM, read: Tensor, zero: list[Tensor]) -> list[Tensor]:
    """By layer, the units that the outputs depend on; `read` are those that the layer behind the LSTM reads."""
    found: list[Tensor] = []
    for layer in reversed(range(lstm.num_layers)):
        units = read & ~zero[layer]
        recurrent = (getattr(lstm, f"weight_hh_l{layer}").detach() != 0).view(GATES, lstm.hidden_size, -1).any(0)
        while True:
            grown = units | (recurrent[units].any(0) & ~zero[layer])
            if torch.equal(grown, units):
                break
            units = grown
        found.insert(0, units)
        inputs = (getattr(lstm, f"weight_ih_l{layer}").detach() != 0).view(GATES, lstm.hidden_size, -1).any(0)
        read = inputs[units].any(0)
    return found


def _filled(units: Tensor, width: int) -> Tensor:
    """The needed units and as many others as the width asks for, ascending."""
    others = (~units).nonzero()[: width - int(units.sum()), 0]
    return torch.cat([units.nonzero()[:, 0], others]).sort().values


def _names(lstm: nn.LSTM, layer: int) -> list[str]:
    kinds = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if lstm.bias else ()))
    return [f"{kind}_l{layer}" for kind in kinds]
