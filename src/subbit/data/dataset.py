"""A data set to train and to test on, made of the sources of its two splits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Data, Examples, Indices, Source, check_range, stratified_choice
from subbit.data.form import form_of
from subbit.data.lookup import machine_memory
from subbit.data.needs import Needs
from subbit.data.stored import StoredData

STORED = ("auto", "true", "false")
LARGEST_SHARE = 0.5
"""Of the machine's memory: images that take more are read batch by batch."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training data (`train`, to be partitioned) and evaluation data (`test`, held by the server)."""

    name: str
    train: Data
    test: Data
    classes: int
    """Number of classes or, for objectives without classes, of outputs."""
    notes: tuple[str, ...] = ()
    """Lines on how the files were read."""
    class_names: tuple[str, ...] | None = None
    """Where the files name the classes."""

    def __post_init__(self) -> None:
        for split, data in (("train", self.train), ("test", self.test)):
            if not len(data):
                raise DataError(f"{self.name}: found no examples in the {split} split; need at least one")
            if data.labels is not None and data.labels.dtype == torch.int64 and data.labels.dim() == 1:
                check_range(data.labels.numpy(), self.classes, f"{self.name}, {split} labels")
        train, test = (form_of(data.batch(np.arange(1))) for data in (self.train, self.test))
        if train.inputs != test.inputs:
            raise DataError(
                f"{self.name}: found {train} in train and {test} in test; need the same shape and type in both"
            )
        if train.labels != test.labels:
            raise DataError(
                f"{self.name}: found labels {train.labels} in train and {test.labels} in test; need the same shape and "
                "type in both"
            )


def choose(source: Source, limit: int | None, key: int, needs: Needs) -> Indices:
    """At most `limit` positions of the source; where examples have classes, each keeps its share."""
    alike = np.zeros(len(source.labels), dtype=np.int64)
    return stratified_choice(source.labels if needs.label_kind == "class" else alike, limit, key)


def read_source(source: Source, chosen: Indices, needs: Needs, later: bool) -> Data:
    """The chosen examples in memory or, with `later`, read batch by batch."""
    owners = None if source.owners is None else tuple(str(source.owners[position]) for position in chosen)
    labels = torch.from_numpy(source.labels[chosen])
    if later and source.items is not None:
        return StoredData([source.items], None, chosen, needs.prepare, labels, owners)
    examples = Examples(source.read(chosen), labels, owners)
    try:
        return needs.prepare(examples)
    except DataError as error:
        raise DataError(f"{source.where}: {error}") from None


def reads_later(wanted: str, where: str, sources: list[tuple[Source, Indices]]) -> bool:
    """Whether these examples of these sources are read batch by batch. All are, or none: images that are read later
    are always in colour."""
    items = [(source.items, chosen) for source, chosen in sources]
    if wanted not in STORED:
        raise ConfigError(f"{where}: found stored={wanted}; need {', '.join(STORED)}")
    if wanted == "true" and any(item is None for item, _ in items):
        raise ConfigError(f"{where}: stored=true is for images in files of their own; this set is read into memory")
    if wanted != "auto" or any(item is None for item, _ in items):
        return wanted == "true"
    needed = sum(len(chosen) * item.bytes_of(int(chosen[0])) for item, chosen in items if item is not None)
    return needed > LARGEST_SHARE * machine_memory()
