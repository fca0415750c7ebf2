"""Which weights of a network the values of a subspace move, and how many values there are for each kind of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from subbit.core.errors import ModelError
from subbit.models.own_directions import most_directions
from subbit.models.select import find_head
from subbit.models.task import Task

if TYPE_CHECKING:
    from subbit.maps.subspace import SubspaceMap

VECTOR_SHARE = 4
"""With `basis=own`, one in so many values outside the head moves biases and norms."""
VALUES, VALUES_WITHOUT_CLASSES = 8192, 14336
"""Of `dimensions=auto`. With 1,024 values for the head, the most is 2,000 bytes in a round at one bit each."""


@dataclass
class Span:
    """Places of the flat vector: runs of them, in order."""

    runs: list[slice] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(run.stop - run.start for run in self.runs)

    def append(self, run: slice) -> None:
        if self.runs and self.runs[-1].stop == run.start:
            run = slice(self.runs.pop().start, run.stop)
        self.runs.append(run)


def find_spans(task: Task, basis: str) -> list[Span]:
    """Of the weights outside the head, of those among them that no direction moves, and of the head."""
    spans, template = [Span(), Span(), Span()], task.flat.template
    for each, offset, count in zip(directions(task, basis), template.offsets, template.counts, strict=True):
        spans[2 if each is None else 1 if each == 0 else 0].append(slice(offset, offset + count))
    return spans


def most_values(task: Task, basis: str) -> tuple[int, int]:
    """How many values there can be outside the head, and in it."""
    matrices, vectors, head = _most(task, basis)
    return matrices + vectors, head


def _most(task: Task, basis: str) -> tuple[int, int, int]:
    body, vectors, head = (span.count for span in find_spans(task, basis))
    if basis == "own":
        body = sum(each**2 for each in directions(task, basis) if each)
    return body, vectors, head


def directions(task: Task, basis: str) -> list[int | None]:
    """Of each tensor: how many directions it can have. None for those of the head; with `random` it does not matter.

    A matrix of zeros, such as the last one of a branch that starts as nothing, responds to no input and has none.
    """
    head, found = _head_of(task), list[int | None]()
    for name, tensor in zip(task.flat.template.names, task.flat.template.views(task.flat.initial), strict=True):
        if head is not None and name.startswith(head):
            found.append(None)
        elif basis == "own":
            found.append(most_directions(tuple(tensor.shape)) if tensor.any() else 0)
        else:
            found.append(1)
    return found


def _head_of(task: Task) -> str | None:
    """How names of the head's weights begin; none if the module is no classifier, or nothing in it is called so."""
    try:
        return f"{find_head(task.flat.module)}." if task.classes else None
    except ModelError:
        return None


def share_widths(piece: SubspaceMap, task: Task) -> list[int]:
    """How many values each span gets. What one cannot use goes to the other outside the head."""
    body, vectors, head = _most(task, piece.basis)
    values = values_at_once(piece, task)
    if rotates(piece, task) and values < body:
        return [body, vectors, min(piece.head_dimensions, head)]
    few = min(values // VECTOR_SHARE, vectors)
    many = min(values - few, body)
    return [many, min(values - many, vectors), min(piece.head_dimensions, head)]


def values_at_once(piece: SubspaceMap, task: Task) -> int:
    """Outside the head."""
    if piece.dimensions != "auto":
        return piece.dimensions
    return VALUES if task.objective.labels_are_classes else VALUES_WITHOUT_CLASSES


def rotates(piece: SubspaceMap, task: Task) -> bool:
    if piece.rotate == "auto":  # A language model comes with its head trained; a new head needs all rounds.
        return piece.basis == "own" and task.objective.name == "language"
    return piece.rotate
