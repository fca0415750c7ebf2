"""Q of `subbit.models.sparse_matrix` in torch, for vectors on a device: the same columns and values from the same key.

Q values is summed in the same order, so it is the same bit for bit. Q' values is summed in the order of the device.
torch has no unsigned arithmetic on every device: words are int64, which wraps around in the same way; a shift to the
right copies the sign, which a mask removes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from subbit.models.quantiles import NORMAL_LEVELS
from subbit.models.sparse_matrix import Projection

BLOCK_ENTRIES = 1 << 22


class DeviceProjection:
    def __init__(self, projection: Projection, device: torch.device) -> None:
        self.projection, self.device = projection, device
        self.scales = torch.from_numpy(projection.scales).to(device)
        self.table = torch.from_numpy(projection.table).to(device)
        stored = projection.stored
        self._stored: tuple[Tensor, Tensor] | None = None
        if stored is not None:
            # torch indexes by signed numbers, and a matrix has less than 2^31 columns.
            columns, levels = torch.from_numpy(stored[0].view(np.int32)), torch.from_numpy(stored[1].view(np.int16))
            self._stored = columns.to(device), levels.to(device)

    def blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Blocks of rows with their columns and the levels of their values, both [rows, degree]."""
        rows, degree = self.projection.rows, self.projection.degree
        step = max(1, BLOCK_ENTRIES // degree)
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            if self._stored is None:
                yield part, *self.draw(part)
            else:
                yield part, self._stored[0][part], self._stored[1][part]

    def draw(self, rows: slice) -> tuple[Tensor, Tensor]:
        degree, width = self.projection.degree, self.projection.columns
        entries = torch.arange(rows.start * degree, rows.stop * degree, device=self.device)
        hashed = murmur64(entries + _signed(self.projection.key & (1 << 64) - 1)).view(-1, degree)
        columns = torch.empty(hashed.shape, dtype=torch.int32, device=self.device)
        for index in range(degree):
            choices = width - degree + index + 1
            chosen = (_shifted(_shifted(hashed[:, index], 32) * choices, 32)).to(torch.int32)
            taken = (columns[:, :index] == chosen[:, None]).any(dim=1)
            columns[:, index] = torch.where(taken, choices - 1, chosen)
        return columns, hashed & (NORMAL_LEVELS - 1)

    def multiply(self, values: Tensor, out: Tensor) -> None:
        """out = Q values."""
        for rows, columns, levels in self.blocks():
            total = torch.zeros(len(columns), device=self.device)
            for index in range(self.projection.degree):
                total += self._entries(levels[:, index]) * values.index_select(0, columns[:, index].contiguous())
            torch.mul(self.scales[rows], total, out=out[rows])

    def multiply_transposed(self, values: Tensor, out: Tensor) -> None:
        """out = Q' values."""
        out.zero_()
        for rows, columns, levels in self.blocks():
            scaled = self.scales[rows] * values[rows]
            for index in range(self.projection.degree):
                out.index_add_(0, columns[:, index].contiguous(), self._entries(levels[:, index]) * scaled)

    def _entries(self, levels: Tensor) -> Tensor:
        return self.table.index_select(0, levels.to(torch.int32))


def murmur64(x: Tensor) -> Tensor:
    """`subbit.codecs.hashing.murmur64` of words in int64."""
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ _shifted(x, 33)) * _signed(multiplier)
    return x ^ _shifted(x, 33)


def _shifted(x: Tensor, places: int) -> Tensor:
    return (x >> places) & ((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    """The int64 with the bits of this word."""
    return word - (1 << 64) if word >= 1 << 63 else word
