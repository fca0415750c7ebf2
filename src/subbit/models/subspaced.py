"""The map of a subspace: every weight moves with one of a few shared values, up or down, by its layer's own scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.models.device_projection import DeviceProjection
from subbit.models.own_directions import Mixing
from subbit.models.reparametrisation import Reparametrisation
from subbit.models.sparse_matrix import SignProjection


@dataclass(frozen=True)
class Piece:
    """Consecutive weights and the values that move them: one each, or fewer through a projection."""

    rows: slice
    columns: slice
    scales: Tensor
    """Of the weights."""
    projection: SignProjection | DeviceProjection | None

    def add(self, values: Tensor, weights: Tensor) -> None:
        """weights += P values."""
        own = values[self.columns]
        if self.projection is None:
            moved = self.scales * own
        else:
            moved = torch.empty_like(self.scales)
            if isinstance(self.projection, SignProjection):
                self.projection.multiply(np.ascontiguousarray(own.numpy()), moved.numpy())
            else:
                self.projection.multiply(own, moved)
        weights[self.rows].add_(moved)

    def pull_back(self, gradient: Tensor, out: Tensor) -> None:
        """out += P' gradient."""
        slope = gradient[self.rows]
        if self.projection is None:
            out[self.columns].add_(self.scales * slope)
            return
        found = torch.empty_like(out[self.columns])
        if isinstance(self.projection, SignProjection):
            self.projection.multiply_transposed(slope.numpy(), found.numpy())
        else:
            self.projection.multiply_transposed(slope, found)
        out[self.columns].add_(found)


LEAST = 1e-30
"""A squared length that is as good as none."""


@dataclass(frozen=True)
class Rounding:
    """What rounding the weights at one vector changed in them."""

    at: Tensor
    change: Tensor

    def add(self, values: Tensor, weights: Tensor) -> None:
        """weights += change, or less of it where the values are nearer to the start, where there is nothing to round:
        in proportion to how far they go in the same direction."""
        length = torch.dot(self.at, self.at).clamp(min=LEAST)
        weights.addcmul_(self.change, (torch.dot(self.at, values) / length).clamp(0, 1))


class Subspaced(Reparametrisation):
    """w = start + P z. The start is only read, at every use: a fitted head is written into it later."""

    def __init__(self, start: Tensor, pieces: Sequence[Piece | Mixing], size: int) -> None:
        self.start, self.pieces, self.size = start, pieces, size
        self.moving: Tensor | None = None
        """Places of the values that move in this turn; the gradient of the others is zero."""
        self.rounding: Rounding | None = None
        """Taken as given by the gradient."""

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        with torch.no_grad():
            weights.copy_(self.start)
            for piece in self.pieces:
                piece.add(trained.detach(), weights)
            if self.rounding is not None:
                self.rounding.add(trained.detach(), weights)

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        out.zero_()
        for piece in self.pieces:
            piece.pull_back(gradient.detach(), out)
        if self.moving is not None:
            kept = out[self.moving]
            out.zero_()[self.moving] = kept


def place_piece(rows: slice, columns: slice, scales: NDArray[np.float32], key: int, device: torch.device) -> Piece:
    """A piece on a device; its projection is drawn from the key unless it has as many weights as values."""
    width, count = columns.stop - columns.start, rows.stop - rows.start
    projection: SignProjection | DeviceProjection | None = None
    if width != count:
        projection = SignProjection(scales, width, key)
        if device.type != "cpu":
            projection = DeviceProjection(projection, device)
    return Piece(rows, columns, torch.from_numpy(scales).to(device), projection)
