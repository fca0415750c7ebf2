"""Examples that are read when they are needed: any map-style data set, e.g. files that do not fit in memory.

    StoredData(dataset, collate)     dataset has __len__ and __getitem__: a torch Dataset or a Hugging Face data set

`collate` makes a batch of a list of items: a pair (inputs, labels) or a dict of tensors with the key `labels`. By
default it stacks the items. Random transforms inside `__getitem__` that use torch's generator are repeatable: a
client's turn sets that generator from its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subbit.core.blame import one_line, place_of
from subbit.core.errors import DataError
from subbit.data.examples import Examples, Indices

Collate = Callable[[list[Any]], Any]
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool)


def _as_it_is(batch: Examples) -> Examples:
    return batch  # A lambda could not be sent to workers.


class StoredData:
    """One or several data sets, one after the other; `indices` are the positions that belong to this part."""

    def __init__(
        self,
        datasets: Sequence[Any],
        collate: Collate | None = None,
        indices: Indices | None = None,
        complete: Callable[[Examples], Examples] = _as_it_is,
        labels: Tensor | None = None,
        owners: tuple[str, ...] | None = None,
    ) -> None:
        """`complete` is applied to every batch. `labels` and `owners` are those of the examples at `indices`, if they
        are known without reading."""
        self.labels, self.owners = labels, owners
        self.datasets = tuple(datasets)
        self.collate, self.complete = collate, complete
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets], dtype=np.int64)
        self.indices = np.arange(int(self._ends[-1]) if len(self._ends) else 0) if indices is None else indices

    def __len__(self) -> int:
        return len(self.indices)

    def checked_by(self, complete: Callable[[Examples], Examples]) -> StoredData:
        """The same data, with another function that is applied to every batch."""
        return StoredData(self.datasets, self.collate, self.indices, complete, self.labels, self.owners)

    def select(self, indices: Indices) -> StoredData:
        labels = None if self.labels is None else self.labels[torch.from_numpy(np.asarray(indices, dtype=np.int64))]
        owners = self.owners and tuple(self.owners[position] for position in indices)
        return StoredData(self.datasets, self.collate, self.indices[indices], self.complete, labels, owners)

    def batch(self, indices: Indices) -> Examples:
        items = [self._item(int(position)) for position in self.indices[indices]]
        try:
            found = (self.collate or collate_items)(items)
        except DataError:
            raise
        except Exception as error:
            if self.collate is not None:
                raise DataError(f"collate: {one_line(error)}{place_of(error)}") from error
            raise DataError(
                f"no batch can be made of these items: {one_line(error)}{place_of(error)}; give a collate function"
            ) from error
        return self.complete(as_batch(found, len(items)))

    def in_batches(self, size: int) -> Iterator[Examples]:
        for start in range(0, len(self), size):
            yield self.batch(np.arange(start, min(start + size, len(self))))

    def _item(self, position: int) -> Any:
        which = int(np.searchsorted(self._ends, position, side="right"))
        inner = position - (int(self._ends[which - 1]) if which else 0)
        try:
            return self.datasets[which][inner]
        except Exception as error:
            raise DataError(f"example {inner} cannot be read: {one_line(error)}{place_of(error)}") from error


def collate_items(items: list[Any]) -> Any:
    """Items (input, label), or dicts of arrays, numbers and lists of them; `label` is called `labels`, as transformers
    does."""
    first = items[0]
    if isinstance(first, Mapping):
        columns = {name: _stack([item[name] for item in items], f"{name!r}") for name in first}
        return {
            "labels" if name == "label" and "labels" not in columns else name: column
            for name, column in columns.items()
        }
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise DataError(f"found an item of type {type(first).__name__}; need a pair (input, label) or a dict")
    inputs, labels = zip(*items, strict=True)
    named = isinstance(first[0], Mapping)
    together = collate_items(list(inputs)) if named else _stack(list(inputs), "inputs")
    return together, _stack(list(labels), "labels")


def _stack(values: list[Any], what: str) -> Tensor:
    try:
        tensors = [value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value)) for value in values]
    except TypeError:
        kind = type(values[0]).__name__
        raise DataError(
            f"{what}: found {kind}; need tensors, arrays or numbers: tokenize texts and transform pictures first, and "
            "remove columns that the module does not take"
        ) from None
    shapes = sorted({f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.") for tensor in tensors})
    if len(shapes) > 1:
        raise DataError(
            f"{what}: found {' and '.join(shapes[:3])} in one batch; need one shape and type, or a collate function"
        )
    stacked = torch.stack(tensors)
    column = what == "labels" and stacked.dim() == 2 and stacked.shape[1] == 1 and not stacked.is_floating_point()
    return stacked.flatten() if column else stacked


def as_batch(found: Any, count: int | None = None) -> Examples:
    """A batch of what a collate function returned: (inputs, labels), or a dict with `labels`."""
    if isinstance(found, Examples):
        return found
    if isinstance(found, Mapping):
        tensors = {str(name): _tensor(value, str(name)) for name, value in found.items()}
        labels = tensors.pop("labels", None)
        if not tensors:
            raise DataError("found a batch without inputs; need a dict of tensors such as input_ids and labels")
        if labels is None:  # For modules that need none, and for objectives that derive them.
            labels = torch.empty((len(next(iter(tensors.values()))), 0))
        batch = Examples(tensors, labels)
    elif isinstance(found, tuple | list) and len(found) == 2:
        inputs, labels = found
        names = (
            {str(name): _tensor(value, str(name)) for name, value in inputs.items()}
            if isinstance(inputs, Mapping)
            else _tensor(inputs, "inputs")
        )
        batch = Examples(names, _tensor(labels, "labels"))
    else:
        raise DataError(f"found a batch of type {type(found).__name__}; need (inputs, labels) or a dict of tensors")
    if count is not None and len(batch) != count:
        raise DataError(
            f"found a batch of {len(batch)} examples for {count} items; the collate function must keep them all"
        )
    return batch


def _tensor(value: Any, name: str) -> Tensor:
    """With the types of `Examples`: floats are float32, labels and tokens int64, images uint8."""
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    if tensor.is_floating_point():
        return tensor.float()
    return tensor.long() if tensor.dtype in INTEGERS and (tensor.dtype != torch.uint8 or name == "labels") else tensor
