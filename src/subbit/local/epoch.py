"""The batches of an epoch. Many small ones are taken from memory and preprocessed together, each is a part of them.

The values of every batch are the same, and so are the bits of what is computed from them: preprocessing is left to the
network except where it treats each value by itself, and a part that does not begin where memory of its own would is
copied, since matrix products may round by the place of their first value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.registry import is_ours
from subbit.data.batches import Preprocess
from subbit.data.examples import Data, Examples, Inputs
from subbit.models.classifier import Classifier
from subbit.models.small import SmallNetwork
from subbit.models.task import Task

TOGETHER = 4 << 20
"""Bytes of the inputs of batches that are taken together: they stay in the processor's cache."""
ALIGNMENT = 64
"""Bytes: torch's memory begins at multiples of it."""
Drawn = Iterable[NDArray[np.int64]]


def epoch_batches(
    task: Task, data: Data, drawn: Drawn, augmentation_key: Callable[[int], int], first_step: int, early: bool
) -> Iterator[Examples]:
    """The batches of these examples, in order. With `early`, inputs may be what the network's own preprocessing makes
    of them."""
    if task.augmentation is not None or not isinstance(data, Examples) or task.flat.device.type != "cpu":
        for step, chosen in enumerate(drawn, start=first_step):
            yield task.training_batch(data, chosen, 0 if task.augmentation is None else augmentation_key(step))
        return
    preprocess = preprocess_of(task, data) if early else None
    for group in _groups(data, drawn):
        examples = data.select(group[0] if len(group) == 1 else np.concatenate(group))
        if preprocess is not None:
            # Floats pass through the network's own preprocessing as they are.
            inputs = preprocess(examples.tensor)
            examples = Examples.unchecked(inputs, examples.labels, examples.owners, examples.rows)
        yield from (examples,) if len(group) == 1 else _parts(examples, [len(chosen) for chosen in group])


def preprocess_of(task: Task, data: Examples) -> Preprocess | None:
    """The layer that all inputs go through first, where its work can be done before: nothing else sees the inputs, and
    each value is treated by itself."""
    module, cache = task.flat.module, task.cache
    if isinstance(module, SmallNetwork):
        ours = type(module).features is SmallNetwork.features and type(module).forward is SmallNetwork.forward
    else:
        ours = type(module) is Classifier and module.kind == "image"
    layer = getattr(module, "preprocess", None)
    if not ours or type(layer) is not Preprocess or not isinstance(data.inputs, Tensor):
        return None
    watched = any(
        (each._forward_pre_hooks or each._forward_hooks or "forward" in vars(each)) for each in (module, layer)
    )
    filled = cache is not None and cache.active  # It has the values behind this layer.
    plain = task.precision == torch.float32 and is_ours(type(task.objective)) and not task.objective.passes_labels
    return layer if plain and not watched and not filled and layer.by_value(data.inputs) else None


def _groups(data: Examples, drawn: Drawn) -> Iterator[list[NDArray[np.int64]]]:
    """Batches that are taken together."""
    # Images become floats, of four bytes each.
    size = sum(tensor[:1].numel() * max(4, tensor.element_size()) for tensor in data.tensors().values())
    group: list[NDArray[np.int64]] = []
    count = 0
    for chosen in drawn:
        if group and (count + len(chosen)) * size > TOGETHER:
            yield group
            group, count = [], 0
        group.append(chosen)
        count += len(chosen)
    if group:
        yield group


def _parts(examples: Examples, lengths: list[int]) -> Iterator[Examples]:
    """The examples in parts of these lengths, which share their memory."""
    named = {name: _split(tensor, lengths) for name, tensor in examples.tensors().items()}
    several = (dict(zip(named, parts, strict=True)) for parts in zip(*named.values(), strict=True))
    inputs: Iterable[Inputs] = named[""] if isinstance(examples.inputs, Tensor) else several
    nothing = [None] * len(lengths)
    ends = list(accumulate(lengths, initial=0))
    owners = examples.owners and [examples.owners[start:stop] for start, stop in pairwise(ends)]
    rows = examples.rows if examples.rows is None else _split(examples.rows, lengths)
    labels = _split(examples.labels, lengths)
    return map(Examples.unchecked, inputs, labels, owners or nothing, rows or nothing)


def _split(tensor: Tensor, lengths: list[int]) -> Sequence[Tensor]:
    """Floats begin where memory of their own would; whole numbers never enter a matrix product."""
    parts: Sequence[Tensor] = torch.split(tensor, lengths)
    if not tensor.is_floating_point():
        return parts
    return [part.clone() if part.data_ptr() % ALIGNMENT else part for part in parts]
