"""Examples in memory, and the checks that all external arrays must pass.

`Data` is what clients train on: `Examples` in memory, or `StoredData` (stored.py), read batch by batch. Images stay
uint8 until a batch is prepared (`batches.Preprocess`), so that 60,000 images of 28 x 28 take 47 MB and not 188. A
`Source` is a split whose labels are known and whose inputs are read only for the selected examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import numpy_generator

Indices = NDArray[np.int64]


Inputs = Tensor | dict[str, Tensor]
"""Of a batch: one tensor, or several by the names of the module's arguments, e.g. `input_ids` and `attention_mask`."""


class Data(Protocol):
    """A client's examples, or a test set."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Tensor | None:
        """None where they are only known when a batch is read."""

    @property
    def owners(self) -> tuple[str, ...] | None:
        """The natural owner of each example, where they are known."""

    def select(self, indices: Indices) -> Data:
        """The examples at these positions, in this order; nothing is read yet."""

    def batch(self, indices: Indices) -> Examples:
        """The same, read into memory."""

    def in_batches(self, size: int) -> Iterator[Examples]:
        """All examples in order, in batches of this size."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs with their labels, in memory; `owners` is the natural owner of each example (writer, speaker, device)."""

    inputs: Inputs
    """Images uint8 [n, channels, height, width], videos uint8 [n, frames, channels, height, width], features float32
    [n, ...], tokens int64 [n, length], or a dict of tensors [n, ...]."""
    labels: Tensor
    """[n, ...]: int64, classes from 0 up where there is one per example; or float32. The objective says what it
    needs."""
    owners: tuple[str, ...] | None = None
    rows: Tensor | None = None
    """int64 [n]: the number of each example among all examples of its problem, by which results for it are cached."""

    def __post_init__(self) -> None:
        if isinstance(self.inputs, Tensor):
            if self.inputs.dtype not in (torch.uint8, torch.float32, torch.int64) or self.inputs.dim() < 2:
                raise DataError(
                    f"inputs: found {self.inputs.dtype} {list(self.inputs.shape)}; need uint8 images "
                    "[n, channels, height, width], float32 features [n, ...] or int64 tokens [n, length]"
                )
        elif not self.inputs:
            raise DataError("inputs: found an empty dict; need at least one tensor [n, ...]")
        if self.labels.dtype not in (torch.int64, torch.float32) or self.labels.dim() < 1:
            raise DataError(
                f"labels: found {self.labels.dtype} {list(self.labels.shape)}; need int64 or float32 [n, ...]"
            )
        for name, tensor in self.tensors().items():
            if tensor.dim() < 1 or len(tensor) != len(self.labels):
                rows = len(tensor) if tensor.dim() else 0
                raise DataError(
                    f"found {rows} {name or 'inputs'} and {len(self.labels)} labels; need one label per input"
                )
        if self.owners is not None and len(self.owners) != len(self.labels):
            raise DataError(f"found {len(self.owners)} owners for {len(self.labels)} examples; need one per example")
        one_class_each = self.labels.dtype == torch.int64 and self.labels.dim() == 1
        if one_class_each and len(self.labels) and int(self.labels.min()) < 0:
            raise DataError(f"labels: found {int(self.labels.min())}; need 0 or more")

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> dict[str, Tensor]:
        """The inputs by name; a single tensor has the name ''."""
        return {"": self.inputs} if isinstance(self.inputs, Tensor) else self.inputs

    @property
    def tensor(self) -> Tensor:
        """The inputs, where they are one tensor."""
        if not isinstance(self.inputs, Tensor):
            raise DataError(f"found inputs {', '.join(self.inputs)}; this needs inputs that are one tensor")
        return self.inputs

    def select(self, indices: Indices) -> Examples:
        """The examples at these positions, in this order."""
        positions = torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64))
        inputs, there = self.inputs, positions.to(self.labels.device)
        return Examples.unchecked(
            inputs.index_select(0, there)
            if isinstance(inputs, Tensor)
            else {name: tensor.index_select(0, there) for name, tensor in inputs.items()},
            self.labels.index_select(0, there),
            self.owners and tuple(self.owners[position] for position in positions.tolist()),
            self.rows if self.rows is None else self.rows.index_select(0, positions),
        )

    @classmethod
    def unchecked(cls, inputs: Inputs, labels: Tensor, owners: tuple[str, ...] | None, rows: Tensor | None) -> Examples:
        """Without the checks: what holds for examples holds for every part of them."""
        made = object.__new__(cls)
        made.__dict__.update(inputs=inputs, labels=labels, owners=owners, rows=rows)
        return made

    def batch(self, indices: Indices) -> Examples:
        return self.select(indices)

    def to(self, device: torch.device) -> Examples:
        """The examples on this device. Their row numbers stay on the CPU, where caches are."""
        if self.labels.device == device:
            return self
        inputs = self.inputs
        return Examples.unchecked(
            inputs.to(device)
            if isinstance(inputs, Tensor)
            else {name: tensor.to(device) for name, tensor in inputs.items()},
            self.labels.to(device),
            self.owners,
            self.rows,
        )

    def in_batches(self, size: int) -> Iterator[Examples]:
        """All examples in order, in batches of this size."""
        for start in range(0, len(self), size):
            yield self.select(np.arange(start, min(start + size, len(self))))


@dataclass(frozen=True, eq=False)
class Source:
    """One split before its inputs are read."""

    where: str
    labels: NDArray[Any]
    """int64 [n], the classes; or what another objective needs, int64 or float32 [n, ...]."""
    read: Callable[[Indices], Inputs]
    """Read the inputs at these ascending positions."""
    owners: Sequence[str] | None = None
    classes: int | None = None
    """Number of classes, if the format declares it."""
    items: Items | None = None
    """The same examples one by one, if they can be read batch by batch."""
    notes: tuple[str, ...] = ()
    """Lines on how the files were read, for people: which class has which number."""
    names: tuple[str, ...] | None = None
    """Of the classes, where the files name them."""

    def tensor(self, indices: Indices) -> Tensor:
        """The inputs, where they are one tensor."""
        inputs = self.read(indices)
        if not isinstance(inputs, Tensor):
            raise DataError(f"{self.where}: found inputs {', '.join(inputs)}; this needs inputs that are one tensor")
        return inputs


class Items(Protocol):
    """A map-style data set of pairs (input, label) that can be sent to other processes."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> tuple[Tensor, Any]: ...

    def bytes_of(self, position: int) -> int:
        """Memory that the input at this position takes."""


def stratified_choice(labels: Indices, limit: int | None, key: int) -> Indices:
    """Choose at most `limit` positions, ascending. Each class keeps its share, by largest remainders; the key selects
    the examples.

    >>> labels = np.array([0] * 6 + [1] * 3)
    >>> np.bincount(labels[stratified_choice(labels, 3, key=1)]).tolist()
    [2, 1]
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"a limit of {limit} examples leaves nothing; need at least 1")
    count = len(labels)
    if limit is None or limit >= count:
        return np.arange(count, dtype=np.int64)
    classes, members = np.unique(labels, return_counts=True)
    quotas, remainders = members * limit // count, members * limit % count
    quotas[np.argsort(-remainders, kind="stable")[: limit - int(quotas.sum())]] += 1
    generator = numpy_generator(key)
    chosen = [
        generator.permutation(np.flatnonzero(labels == label))[:quota]
        for label, quota in zip(classes, quotas, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def as_labels(array: NDArray[Any], where: str) -> Indices:
    """One non-negative integer per example; a column [n, 1] counts as [n]."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{where}: found {array.dtype} labels {list(array.shape)}; need integers, one per example [n]")
    if array.size and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max):
        raise DataError(f"{where}: found labels from {array.min()} to {array.max()}; need 0 or more")
    return array.astype(np.int64)


def any_labels(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Labels of any objective: int64 or float32 [n, ...]. Masks may have a channel of their own, [n, height, width, 1]
    or [n, 1, height, width]. The objective checks the rest."""
    if array.ndim < 1 or array.dtype.kind not in "iufb":
        raise DataError(f"{where}: found {array.dtype} labels {list(array.shape)}; need numbers [n, ...]")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: found the label {array.max()}; need less than 2^63")
    if array.ndim == 4 and 1 in (array.shape[1], array.shape[3]):
        array = array[:, 0] if array.shape[1] == 1 else array[..., 0]
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def check_range(labels: Indices, classes: int, where: str) -> None:
    if classes < 1:
        raise DataError(f"{where}: {classes} classes declared; need at least 1")
    if labels.size and int(labels.max()) >= classes:
        raise DataError(f"{where}: found label {int(labels.max())}; need labels below {classes}, the number of classes")


def as_inputs(array: NDArray[Any], where: str) -> Tensor:
    """Images [n, (channels,) height, width], features or tokens, with one of the three dtypes of `Examples`."""
    kind, found = array.dtype.kind, f"{where}: found {array.dtype} inputs {list(array.shape)}"
    if 0 in array.shape[1:]:
        raise DataError(f"{found}; need at least one value per example")
    if array.dtype == np.uint8:
        if array.ndim not in (3, 4):
            raise DataError(f"{found}; uint8 means images, [n, height, width] or [n, channels, height, width]")
        return torch.from_numpy(np.array(array[:, None] if array.ndim == 3 else array, order="C"))
    if kind == "f":
        if array.ndim < 2:
            raise DataError(f"{found}; features need the shape [n, ...]")
        values = np.array(array, dtype=np.float32, order="C")
        strange = values.size - int(np.isfinite(values).sum())
        if strange:
            raise DataError(f"{where}: found {strange} features that are not finite in float32; need finite numbers")
        return torch.from_numpy(values)
    if kind in "iu":
        if array.ndim != 2:
            raise DataError(f"{found}; integers mean tokens [n, length]; images need the type uint8")
        return torch.from_numpy(np.array(array, dtype=np.int64, order="C"))
    raise DataError(f"{found}; need uint8 images, float features or integer tokens")


def pick(array: NDArray[Any], indices: Indices, count: int, where: str) -> NDArray[Any]:
    """Select rows of an array that must have one row per label."""
    if array.ndim < 1 or len(array) != count:
        raise DataError(f"{where}: found inputs {list(array.shape)} for {count} labels; need one input per label")
    return array if len(indices) == count else array[indices]
