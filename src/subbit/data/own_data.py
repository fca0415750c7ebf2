"""Data sets of any kind that users have, as `Data`.

    Examples, a pair (inputs, labels), a dict of tensors with `labels`, a TensorDataset     in memory
    any other data set with __len__ and __getitem__                                         read batch by batch

Reading batch by batch is what a torch or Hugging Face data set is for: it may be larger than memory, and its transforms
may be random. `in_memory=True` reads such a data set once, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from subbit.core.errors import DataError
from subbit.data.batches import as_array
from subbit.data.examples import Data, Examples, as_inputs
from subbit.data.form import Form, different, form_of
from subbit.data.stored import Collate, StoredData, as_batch

Complete = Callable[[Examples], Examples]
"""Of an objective: gives labels their form, and checks them."""
AT_ONCE = 256


def as_data(dataset: Any, complete: Complete, collate: Collate | None = None, in_memory: bool | None = None) -> Data:
    if isinstance(dataset, Examples):
        return complete(dataset)
    if isinstance(dataset, StoredData):
        return dataset.checked_by(complete)
    if isinstance(dataset, Mapping):
        return complete(as_batch(dataset))
    if isinstance(dataset, tuple) and len(dataset) == 2:
        inputs, labels = (as_array(part, "a pair (inputs, labels)") for part in dataset)
        return complete(Examples(as_inputs(inputs, "inputs"), as_labels(labels)))
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"found {type(dataset).__name__}; need Examples, a pair (inputs, labels), a dict of tensors or a data set "
            "with __len__ and __getitem__"
        )
    stored = StoredData([dataset], collate, complete=complete)
    if in_memory is None:
        in_memory = collate is None and _is_in_memory(dataset)
    return _read(stored) if in_memory or not len(stored) else stored


def in_memory(dataset: Any, complete: Complete) -> Examples:
    """The same, read once."""
    data = as_data(dataset, complete, in_memory=True)
    return data if isinstance(data, Examples) else join([*data.in_batches(AT_ONCE)], "items")


def _is_in_memory(dataset: Any) -> bool:
    inner = dataset.dataset if isinstance(dataset, Subset) else dataset
    return isinstance(inner, TensorDataset | list | tuple)


def as_labels(array: Any) -> Tensor:
    """Integers as int64, floats as float32; a column [n, 1] of integers counts as [n]."""
    labels = torch.from_numpy(array.copy())
    if labels.is_floating_point():
        return labels.float()
    return labels.long().flatten() if labels.dim() == 2 and labels.shape[1] == 1 else labels.long()


def _read(stored: StoredData) -> Examples:
    """All of it in memory. A client without data is valid; the shape of its inputs is never used."""
    if not len(stored):
        return Examples(torch.empty((0, 0)), torch.empty(0, dtype=torch.int64))
    return join([*stored.in_batches(AT_ONCE)], "items")


def join(parts: Sequence[Examples], who: str) -> Examples:
    """One after the other. Those without examples do not count."""
    filled = [part for part in parts if len(part)]
    _refuse_different(map(form_of, filled), who)
    owners = [part.owners for part in filled]
    known = tuple(owner for each in owners if each is not None for owner in each)
    if known and None in owners:
        raise DataError("some examples have owners and others have none: give all of them owners, or none")
    tensors = {name: torch.cat([part.tensors()[name] for part in filled]) for name in filled[0].tensors()}
    labels = torch.cat([part.labels for part in filled])
    return Examples(tensors.get("", tensors), labels, known or None)


def form_of_data(data: Data) -> Form:
    """The form of the first example; without sizes where a collate function decides them, batch by batch."""
    form = form_of(data.batch(np.arange(1)))
    return form.without_sizes() if isinstance(data, StoredData) and data.collate is not None else form


def _refuse_different(forms: Iterable[Form], who: str) -> None:
    found = different(forms)
    if found:
        raise DataError(f"{who} hold inputs or labels of different shapes or types: {found}; one is needed")


def join_data(parts: Sequence[Data], who: str) -> Data:
    """Data of several clients, one after the other."""
    filled = [part for part in parts if len(part)]
    in_memory = [part for part in filled if isinstance(part, Examples)]
    if len(in_memory) == len(filled):
        return join(in_memory, who)
    stored = [part for part in filled if isinstance(part, StoredData)]
    if len(stored) < len(filled):
        raise DataError(
            f"some {who} hold data in memory and others data sets that are read: set in_memory=True or False"
        )
    _refuse_different(map(form_of_data, stored), who)
    return StoredData(
        [dataset for part in stored for dataset in part.datasets], stored[0].collate, complete=stored[0].complete
    )
