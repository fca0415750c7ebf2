"""Long vectors in blocks, and the gradient in pieces: what an optimiser goes over in a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Gradient = list[Tensor] | tuple[Tensor, ...]
"""Of a block, in the form of its `views`."""
BLOCK = 1 << 17
"""Values of a block: five vectors of them are 2.5 MB."""
DEVICE_BLOCK = 1 << 24
"""Elsewhere the time to start an operation counts, and the memory of its result."""


def block_size(device: torch.device) -> int:
    return BLOCK if device.type == "cpu" else DEVICE_BLOCK


@dataclass(frozen=True)
class Block:
    """A part of the vectors: that of several pieces of the gradient, or of a part of one."""

    pieces: slice
    part: slice | None
    """Of the one piece, as a vector, where it is longer than a block."""
    vectors: tuple[Tensor, ...]
    """This part of each vector."""
    views: tuple[list[Tensor], ...]
    """The same, each in the form of the pieces."""


class Blocks:
    """The blocks of vectors of one length. Kept for the next step: making them takes longer than a step of a small
    network."""

    def __init__(self, most: int) -> None:
        self._most = most
        """Values of a block."""
        self._vectors: tuple[Tensor, ...] = ()
        self._shapes: list[torch.Size] | None = None
        self._blocks: list[Block] = []

    def of(self, vectors: tuple[Tensor, ...], pieces: Sequence[Tensor]) -> Iterator[tuple[Block, Gradient]]:
        """Blocks of these vectors, each with its part of the gradient, which is in these pieces, in order."""
        shapes = [piece.shape for piece in pieces]
        if shapes != self._shapes or any(new is not old for new, old in zip(vectors, self._vectors, strict=True)):
            self._vectors, self._shapes, self._blocks = vectors, shapes, list(self._make(vectors, shapes))
        # Values that are not in order would be added one by one.
        ordered = [piece if piece.is_contiguous() else piece.contiguous() for piece in pieces]
        for block in self._blocks:
            chosen = ordered[block.pieces]
            yield block, chosen if block.part is None else [chosen[0].view(-1)[block.part]]

    def _make(self, vectors: tuple[Tensor, ...], shapes: list[torch.Size]) -> Iterator[Block]:
        counts = [shape.numel() for shape in shapes]
        first, start = 0, 0
        while first < len(shapes):
            last, stop = first + 1, start + counts[first]
            while last < len(shapes) and stop - start + counts[last] <= self._most:
                last, stop = last + 1, stop + counts[last]
            if stop - start <= self._most:
                parts = tuple(vector[start:stop] for vector in vectors)
                views = tuple(_in_form(part, shapes[first:last]) for part in parts)
                yield Block(slice(first, last), None, parts, views)
            for low in range(start, stop, self._most) if stop - start > self._most else ():
                high = min(low + self._most, stop)
                parts = tuple(vector[low:high] for vector in vectors)
                part = slice(low - start, high - start)
                yield Block(slice(first, last), part, parts, tuple([vector] for vector in parts))
            first, start = last, stop


def _in_form(vector: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
