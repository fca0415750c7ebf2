"""Layers of a masked network, their groups, and the structure that remains after pruning.

A layer is one tensor of masked weights, viewed as rows x columns x cells: outputs, inputs and, for a convolution, the
positions of its kernel. Its *groups* are the rows and the columns (filters and channels). A row without a one is a unit
without inputs, a column without a one is a unit whose output is unused; both can be removed from the network.

    group lasso   R(s) = sum over rows and columns g of sqrt(eps + sum_{i in g} sigmoid(s_i)^2)

over the elements that are not pruned (Yuan and Lin, "Model selection and estimation in regression with grouped
variables", 2006; as in paper 004 without the factor sqrt(|g|) of the original, which `scaled` adds). Epsilon keeps the
gradient of an all-zero group finite: it is zero.

A *structure* tells which units of the last layers survive; a unit is an element or a whole row. The number of survivors
is the same for every client and known before pruning, so a received structure can be checked, and the bits inside it
have a known length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.models.flat import FlatModel
from subbit.models.select import find_head, parameter_kinds

EPSILON = 1e-12
GATES = 4  # Row blocks of an LSTM's weights: input, forget, cell and output gate, one quarter each.

Booleans = NDArray[np.bool_]
Values = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Layer:
    """Masked weights of one tensor: `rows * columns * cells` positions of the flat vector, starting at `offset`."""

    name: str
    owner: str
    """Name of the module that holds the tensor."""
    offset: int
    rows: int
    columns: int
    cells: int
    classifier: bool
    """Whether its rows are the classes."""

    @property
    def size(self) -> int:
        return self.rows * self.columns * self.cells

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.cells


def places_of(layers: Sequence[Layer]) -> NDArray[np.int64]:
    """Positions in the flat vector, layer by layer."""
    return np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(layer.offset, layer.offset + layer.size) for layer in layers)]
    )


def masked_layers(flat: FlatModel, mask_output_gate: bool) -> tuple[Layer, ...]:
    """The selected weights, in order: all tensors with at least two dimensions; LSTMs without their output gate."""
    kinds, template = parameter_kinds(flat.module), flat.template
    try:
        head = find_head(flat.module)
    except ModelError:
        head = None
    layers = []
    for name, shape, offset in zip(template.names, template.shapes, template.offsets, strict=True):
        if kinds[name] != "weights":
            continue
        owner, _, tensor = name.rpartition(".")
        rows, columns = shape[0], shape[1]
        gates = isinstance(flat.module.get_submodule(owner), nn.LSTM) and tensor.startswith(("weight_ih", "weight_hh"))
        if gates and not mask_output_gate:
            rows -= rows // GATES
        cells = int(np.prod(shape[2:], dtype=np.int64))
        layers.append(Layer(name, owner, offset, rows, columns, cells, owner == head))
    return tuple(layers)


def group_lasso(scores: Tensor, alive: Tensor, layers: Sequence[Layer], scaled: bool = False) -> tuple[Tensor, Tensor]:
    """R and its gradient with respect to the scores; `alive` is 1 inside the structure and 0 elsewhere."""
    theta = torch.sigmoid(scores)
    present = theta * alive
    slope = torch.zeros_like(scores)
    total = scores.new_zeros(())
    for layer in layers:
        place = slice(layer.offset, layer.offset + layer.size)
        values = present[place].view(layer.shape)
        for others in ((1, 2), (0, 2)):
            norm = (values.square().sum(others, keepdim=True) + EPSILON).sqrt()
            factor = torch.ones_like(norm)
            if scaled:
                factor = alive[place].view(layer.shape).sum(others, keepdim=True).sqrt()
            total = total + (factor * norm).sum()
            slope[place].view(layer.shape).add_(factor * values / norm)
    return total, slope * theta * (1 - theta)


def empty_groups(mask: Booleans, layers: Sequence[Layer]) -> tuple[int, int]:
    """Number of rows and of columns without a one; `mask` holds the layers one after the other."""
    rows = columns = start = 0
    for layer in layers:
        values = mask[start : start + layer.size].reshape(layer.shape)
        rows += int(np.count_nonzero(~values.any(axis=(1, 2))))
        columns += int(np.count_nonzero(~values.any(axis=(0, 2))))
        start += layer.size
    return rows, columns


class Structures:
    """Properties shared by the structures of all clients: the pruned layers, their units, and how many survive.

    A structure has one bit per unit. As elements it has one bit per masked position, and layers that are not pruned
    belong to every structure.
    """

    def __init__(
        self, layers: Sequence[Layer], pruned_layers: int, keep_rate: float, whole_rows: bool, per_layer: bool
    ) -> None:
        # The first module is never pruned: later layers cannot recover what it drops.
        owners = list(dict.fromkeys(layer.owner for layer in layers))[1:]
        pruned = set(owners[-pruned_layers:] if pruned_layers else [])
        # Rows of the classifier are the classes: without its row, a class could not be predicted.
        self.layers = [layer for layer in layers if layer.owner in pruned and not (whole_rows and layer.classifier)]
        self.places = places_of(self.layers)
        """Positions in the flat vector that can be pruned."""
        masked = places_of(layers)
        self._prunable = np.isin(masked, self.places)
        self._unit_sizes = [layer.columns * layer.cells if whole_rows else 1 for layer in self.layers]
        self._units = [layer.size // size for layer, size in zip(self.layers, self._unit_sizes, strict=True)]
        self._kept = [max(1, round(keep_rate * units)) for units in self._units]
        self._per_layer = per_layer
        self.units = sum(self._units)
        kept = sum(count * size for count, size in zip(self._kept, self._unit_sizes, strict=True))
        self.kept_elements = masked.size - self.places.size + kept
        """Number of masked positions inside any structure."""

    def prune(self, saliency: Values, magnitude: Values) -> Booleans:
        """The units that survive, given values at `places`: those with the largest sums of saliencies.

        Ties, e.g. if nothing was learned, go to the larger weights, then to the lower position.
        """
        saliencies, magnitudes = self._sums(saliency), self._sums(magnitude)
        if self._per_layer:
            pieces = zip(saliencies, magnitudes, self._kept, strict=True)
            return np.concatenate([np.zeros(0, np.bool_), *(_largest(*piece) for piece in pieces)])
        return _largest(np.concatenate(saliencies), np.concatenate(magnitudes), sum(self._kept))

    def _sums(self, values: Values) -> list[Values]:
        """Sum over each unit, layer by layer."""
        ends = np.cumsum([layer.size for layer in self.layers])
        pieces = [values[end - layer.size : end] for end, layer in zip(ends, self.layers, strict=True)]
        return [
            piece.reshape(-1, size).sum(axis=1, dtype=np.float64)
            for piece, size in zip(pieces, self._unit_sizes, strict=True)
        ]

    def elements(self, units: Booleans) -> Booleans:
        """Expand units to masked positions; all of them if nothing is pruned."""
        inside = np.ones(self._prunable.size, dtype=np.bool_)
        inside[self._prunable] = np.repeat(units, np.repeat(self._unit_sizes, self._units))
        return inside

    def fault(self, units: Booleans) -> str:
        """What is wrong with a received structure; empty if `prune` could have made it."""
        ends = np.cumsum(self._units)
        found = [int(np.count_nonzero(units[end - size : end])) for end, size in zip(ends, self._units, strict=True)]
        if found == self._kept or (not self._per_layer and sum(found) == sum(self._kept)):
            return ""
        return f"a structure that keeps {found} units of the pruned layers: needs {self._kept}"


def _largest(saliency: Values, magnitude: Values, count: int) -> Booleans:
    order = np.lexsort((-magnitude, -saliency))  # The last key counts most; ties keep their order.
    kept = np.zeros(saliency.size, dtype=np.bool_)
    kept[order[:count]] = True
    return kept
