"""Names and shapes of the tensors in a flat vector: what a receiver expects a frame to contain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from subbit.core.errors import ModelError


@dataclass(frozen=True)
class Template:
    """Tensors laid out one after the other, each in row-major order.

    >>> template = Template(("weight", "bias"), ((2, 3), (2,)))
    >>> template.size, template.offsets
    (8, (0, 6))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ModelError(f"a template needs distinct names and one shape for each: {self.names}, {self.shapes}")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of values of each tensor."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        return sum(self.counts)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Start of each tensor."""
        return tuple(accumulate(self.counts, initial=0))[:-1]

    def views(self, flat: Tensor) -> list[Tensor]:
        """The tensors inside a flat vector of this template. They share its memory."""
        if flat.shape != (self.size,):
            raise ModelError(f"a vector of shape {tuple(flat.shape)} does not fit a template of {self.size} values")
        pieces = zip(self.offsets, self.counts, self.shapes, strict=True)
        return [flat[offset : offset + count].view(shape) for offset, count, shape in pieces]

    @cached_property
    def _digests(self) -> dict[str, bytes]:
        """By salt: every frame has one, and a run has few."""
        return {}

    def digest(self, salt: str = "") -> bytes:
        """8 bytes that change with any name, shape, their order or the salt (the method and part of a frame)."""
        if salt not in self._digests:
            text = json.dumps([salt, self.names, self.shapes])
            self._digests[salt] = blake2b(text.encode(), digest_size=8).digest()
        return self._digests[salt]
