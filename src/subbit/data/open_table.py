"""A table as a data set: one file with a share of its rows held out to test on, or one file for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.data.cells import Column, Labels, as_number, is_empty, read_labels, table_of_numbers
from subbit.data.examples import Indices, Inputs, Source
from subbit.data.held_out import hold_out
from subbit.data.images import image_source
from subbit.data.lookup import inside
from subbit.data.needs import Reading
from subbit.data.packing import Texts, packed_source
from subbit.data.table_roles import Roles, TableOptions
from subbit.data.tables import TABLES, Table, read_table
from subbit.data.text import tokenise, tokenise_masked

LENGTH = 128
SHOWN = 30


@dataclass(frozen=True)
class Split:
    """The rows of a file that belong to one side."""

    name: str
    path: Path
    table: Table
    rows: Indices

    @property
    def where(self) -> str:
        return f"{self.path}, {self.name}"

    def cells(self, column: str) -> list[Any]:
        cells = self.table.columns[column]
        return [cells[row] for row in self.rows]


def open_table(path: Path, given: dict[str, str], reading: Reading) -> tuple[Source, Source]:
    options = TableOptions(given, str(path))
    chosen: list[Roles] = []

    def keep(names: list[str]) -> list[str]:
        chosen.append(options.roles(names, reading.needs))
        return chosen[0].all

    table = read_table(path, keep)
    roles = chosen[0]
    if roles.found and roles.inputs == "features":
        roles = _with_numbers(roles, table)
    other = _test_table(path, options, roles)
    labels = _labels(roles, table, table if other is None else other[1], options, reading)
    owners = None if roles.owner is None else _owners(table, roles.owner)
    if other is None:
        classes = labels.train if labels.train.ndim == 1 and labels.train.dtype == np.int64 else None
        train, test = hold_out(len(table), options.test_share, classes, owners, str(path))
        splits = [Split("train", path, table, train), Split("test", path, table, test)]
        values = [labels.train[train], labels.train[test]]
    else:
        splits = [Split("train", path, table, np.arange(len(table)))]
        splits += [Split("test", *other, np.arange(len(other[1])))]
        values = [labels.train, labels.test]
    make = _Maker(options, reading, roles, labels, splits[0])
    return make.source(splits[0], values[0]), make.source(splits[1], values[1])


def _with_numbers(roles: Roles, table: Table) -> Roles:
    """Without the columns whose first cell that is not empty is no number."""

    def has_numbers(name: str) -> bool:
        first = next((cell for cell in table.columns[name] if not is_empty(cell)), None)
        return as_number(first) is not None

    columns = tuple(name for name in roles.columns if has_numbers(name))
    if not columns:
        raise DataError(
            f"{table.where}: the columns are {', '.join(table.names[:SHOWN])}, none of the inputs has numbers; name "
            "the inputs with ?text=, ?image= or ?features="
        )
    return Roles(roles.inputs, columns, roles.labels, roles.owner, roles.found)


def _test_table(path: Path, options: TableOptions, roles: Roles) -> tuple[Path, Table] | None:
    name = options.given.get("test")
    if name is None:
        return None
    beside = path.parent / name
    other = beside if beside.is_file() else Path(name).expanduser()
    if not other.is_file() or other.suffix.lower() not in TABLES:
        raise DataError(f"{path}: found test={name}; need a file, {', '.join(TABLES)}, beside this one or by its path")

    def keep(names: list[str]) -> list[str]:
        missing = [column for column in roles.all if column not in names]
        if missing:
            raise DataError(
                f"{other}: there is no column {missing[0]!r}, which {path.name} has; the columns are "
                f"{', '.join(names[:SHOWN])}"
            )
        return roles.all

    return other, read_table(other, keep)


def _labels(roles: Roles, train: Table, test: Table, options: TableOptions, reading: Reading) -> Labels:
    columns = [
        [Column(f"{table.where}, column {name!r}", table.columns[name]) for name in roles.labels]
        for table in (train, test)
    ]
    if not roles.labels:
        return Labels.none(len(train), len(test))
    return read_labels(columns[0], columns[1], reading.needs, options.classes or reading.class_names)


def _owners(table: Table, name: str) -> list[str]:
    for row, cell in enumerate(table.columns[name], 1):
        if is_empty(cell):
            raise DataError(f"{table.where}, column {name!r}, row {row}: found an empty cell; need an owner")
    return [str(cell).strip() for cell in table.columns[name]]


class _Maker:
    def __init__(self, options: TableOptions, reading: Reading, roles: Roles, labels: Labels, train: Split) -> None:
        self._options, self._roles, self._labels = options, roles, labels
        self._tokenizer = options.given.get("tokenizer", reading.tokenizer)
        self._is_language = reading.needs.label_kind == "token"
        self._values: dict[int, NDArray[np.float32]] = {}
        """The features of a table, of which both splits may be."""
        self._scale: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if options.scale and roles.inputs == "features":
            values = self._numbers(train)
            spread = values.std(axis=0)
            self._scale = values.mean(axis=0), np.where(spread > 0, spread, 1).astype(np.float32)

    def source(self, split: Split, labels: NDArray[Any]) -> Source:
        owners = None if self._roles.owner is None else _owners(split.table, self._roles.owner)
        own = None if owners is None else [owners[row] for row in split.rows]
        names = self._labels.names
        classes = None if names is None else len(names)
        if self._roles.inputs == "image":
            files = self._files(split)
            found = image_source(split.where, files, labels, classes, self._options.size, own)
            return Source(found.where, labels, found.read, own, classes, found.items, self._notes(), names)
        if self._options.pack:
            return self._packed(split, own)
        read = self._text(split) if self._roles.inputs == "text" else self._features(split)
        return Source(split.where, labels, read, own, classes, notes=self._notes(), names=names)

    def _packed(self, split: Split, owners: list[str] | None) -> Source:
        if self._roles.inputs != "text" or not self._is_language or self._roles.labels:
            raise ConfigError(f"{split.path}: found pack=true; it is for texts without labels and objective=language")
        texts = Texts(split.where, self._cells_of_text(split), owners)
        return packed_source(texts, self._tokenizer, self._options.length or LENGTH, self._notes())

    def _notes(self) -> tuple[str, ...]:
        """For the summary of the split: what was made of the file."""
        columns = self._roles.columns
        shown = ", ".join(columns[:SHOWN]) + (f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else "")
        by = f", tokenizer {self._tokenizer}" if self._roles.inputs == "text" else ""
        return (f"inputs       {self._roles.inputs}: {shown}{by}", *self._labels.notes)

    def _numbers(self, split: Split) -> NDArray[np.float32]:
        table = split.table
        if id(table) not in self._values:
            columns = [Column(f"{table.where}, column {name!r}", table.columns[name]) for name in self._roles.columns]
            self._values[id(table)] = table_of_numbers(columns)
        return self._values[id(table)][split.rows]

    def _features(self, split: Split) -> Callable[[Indices], Tensor]:
        values = self._numbers(split)
        if self._scale is not None:
            values = (values - self._scale[0]) / self._scale[1]
        return lambda indices: torch.from_numpy(values[indices])

    def _cells_of_text(self, split: Split) -> list[str]:
        texts, where = split.cells(self._roles.columns[0]), f"{split.table.where}, column {self._roles.columns[0]!r}"
        for row, text in zip(split.rows, texts, strict=True):
            if text is not None and not isinstance(text, str):
                raise DataError(f"{where}, row {row + 1}: found {type(text).__name__}; need text")
        return [text or "" for text in texts]

    def _text(self, split: Split) -> Callable[[Indices], Inputs]:
        texts, length = self._cells_of_text(split), self._options.length or LENGTH

        def read(indices: Indices) -> Inputs:
            chosen = [texts[position] for position in indices]
            if self._is_language:
                return tokenise_masked(chosen, self._tokenizer, length)
            return tokenise(chosen, self._tokenizer, length)

        return read

    def _files(self, split: Split) -> list[Path]:
        folder, column = split.path.parent, self._roles.columns[0]
        files = []
        for row, name in zip(split.rows, split.cells(column), strict=True):
            place = f"{split.table.where}, column {column!r}, row {row + 1}"
            if not isinstance(name, str) or is_empty(name):
                raise DataError(f"{place}: found {name!r}; need the path of an image, relative to the file")
            files.append(inside(folder, name.strip(), place))
            if not files[-1].is_file():
                raise DataError(f"{place}: there is no file {name.strip()!r} in {folder}")
        return files
