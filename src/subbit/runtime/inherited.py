"""Descriptors that a worker got from its server through its nursery, where they have other numbers."""

from __future__ import annotations

from collections.abc import Sequence

_inherited: list[int] = []


def inherit(descriptors: Sequence[int]) -> None:
    """Called in a new worker, before it unpickles what it is for."""
    _inherited[:] = descriptors


class InheritedDescriptor:
    """Pickled in the place of a descriptor, by its position among those that were sent."""

    def __init__(self, position: int) -> None:
        self._position = position

    def detach(self) -> int:
        return _inherited[self._position]
