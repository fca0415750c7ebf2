"""Which matrices of a network become masks, and the masks of a moved network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from subbit.models.mask_rounding import find_mask
from subbit.models.task import Task
from subbit.models.turned_layers import is_turned


@dataclass(frozen=True)
class Place:
    """A matrix in the flat vector."""

    rows: slice
    outputs: int
    turned: bool
    """Stored as [inputs, outputs]."""

    def of(self, vector: Tensor) -> Tensor:
        """[outputs, inputs], a view."""
        matrix = vector[self.rows]
        return matrix.view(-1, self.outputs).T if self.turned else matrix.view(self.outputs, -1)


class Masking:
    def __init__(self, task: Task, moving: Collection[int]) -> None:
        """`moving` are the offsets of the matrices that move. What has a single output, such as an embedding of
        positions that is kept as one row, is no matrix."""
        self.start, template = task.flat.initial, task.flat.template
        self.places = []
        views = template.views(self.start)
        for name, offset, tensor in zip(template.names, template.offsets, views, strict=True):
            turned = is_turned(task.flat.module.get_submodule(name.rpartition(".")[0]))
            outputs = tensor.numel() // tensor.shape[0] if turned else tensor.shape[0]
            if offset in moving and 1 < outputs < tensor.numel():
                self.places.append(Place(slice(offset, offset + tensor.numel()), outputs, turned))

    def find(self, weights: Tensor) -> list[Tensor | None]:
        """The masks that respond most like these weights."""
        return [find_mask(place.of(self.start), place.of(weights)) for place in self.places]

    def apply(self, masks: list[Tensor | None], weights: Tensor) -> None:
        """Every matrix becomes its start times its mask, in place."""
        for place, mask in zip(self.places, masks, strict=True):
            if mask is not None:
                place.of(weights).copy_(place.of(self.start) * mask.to(weights.device))
