"""Cells of a table as labels and features. Errors name the row and the column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import ConfigError, DataError
from subbit.data.needs import Needs

MOST_CLASSES = 1 << 16
SHOWN = 100


@dataclass(frozen=True)
class Column:
    where: str
    """The file and the column."""
    cells: Sequence[Any]

    def place(self, row: int) -> str:
        return f"{self.where}, row {row + 1}"


@dataclass(frozen=True)
class Labels:
    train: NDArray[Any]
    test: NDArray[Any]
    names: tuple[str, ...] | None = None
    """Of the classes, if they are not numbers already."""

    @classmethod
    def none(cls, train: int, test: int) -> Labels:
        """Of so many examples without labels."""
        return cls(np.empty((train, 0), np.float32), np.empty((test, 0), np.float32))

    @property
    def notes(self) -> tuple[str, ...]:
        if self.names is None:
            return ()
        shown = ", ".join(f"{number} {name}" for number, name in enumerate(self.names[:SHOWN]))
        return (f"classes      {shown}{', ...' if len(self.names) > SHOWN else ''}",)


def as_number(cell: Any) -> float | None:
    """None for what is no number."""
    if isinstance(cell, str | numbers.Number) or hasattr(cell, "__float__"):
        try:
            return float(cell)
        except (ValueError, TypeError, OverflowError):
            return None
    return None


def is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def column_numbers(column: Column) -> NDArray[np.float64]:
    """One finite number per row, within what float32 can hold."""
    values = np.empty(len(column.cells))
    for row, cell in enumerate(column.cells):
        number = as_number(cell)
        if number is None or not math.isfinite(number) or abs(number) > np.finfo(np.float32).max:
            found = "an empty cell" if is_empty(cell) else repr(cell)[:60]
            raise DataError(f"{column.place(row)}: found {found}; need a finite number: fill it in, or remove the row")
        values[row] = number
    return values


def table_of_numbers(columns: Sequence[Column]) -> NDArray[np.float32]:
    return np.stack([column_numbers(column).astype(np.float32) for column in columns], axis=1)


def read_labels(train: Sequence[Column], test: Sequence[Column], needs: Needs, named: Sequence[str] = ()) -> Labels:
    """The labels that an objective needs. `named` are the classes in their order; otherwise they are sorted."""
    if needs.label_kind == "position":
        raise ConfigError(
            f"objective={needs.name}: a table has no masks; put images and masks [n, height, width] in an .npz file"
        )
    if not train:
        if needs.label_kind not in ("token", "any"):
            raise ConfigError(f"objective={needs.name}: needs a column of labels; name it with ?label=...")
        return Labels.none(0, 0)
    several = len(train) > 1
    if needs.label_kind == "class":
        if several:
            raise ConfigError(
                f"found {len(train)} columns of labels; objective=classification takes one; for several use "
                "objective=multi-label or objective=regression"
            )
        return _classes(train[0], test[0], named)
    if needs.label_kind == "any" and not several:
        whole = [_whole(column) for column in (train[0], test[0])]
        if whole[0] is not None and whole[1] is not None:
            return Labels(whole[0], whole[1])
        if any(as_number(cell) is None for cell in train[0].cells):
            return _classes(train[0], test[0], named)
    if needs.label_kind in ("number", "any"):
        first, second = (table_of_numbers(columns) for columns in (train, test))
        return Labels(first, second) if several else Labels(first[:, 0], second[:, 0])
    raise ConfigError(f"objective={needs.name} takes its labels from the text; leave out label=")


def _classes(train: Column, test: Column, named: Sequence[str]) -> Labels:
    if not named:
        whole = [_whole(column) for column in (train, test)]
        if whole[0] is not None and whole[1] is not None:
            return Labels(whole[0], whole[1])
        _refuse_fractions(train)
    texts = [_texts(column) for column in (train, test)]
    names = tuple(named) or tuple(sorted(set(texts[0])))
    if len(names) > MOST_CLASSES:
        raise DataError(f"{train.where}: found {len(names)} different labels; need at most {MOST_CLASSES} classes")
    number_of = {name: number for number, name in enumerate(names)}
    found = []
    for column, cells in zip((train, test), texts, strict=True):
        for row, cell in enumerate(cells):
            if cell not in number_of:
                known = ", ".join(names[:SHOWN])
                raise DataError(f"{column.place(row)}: found the class {cell[:60]!r}; the classes are {known}")
        found.append(np.array([number_of[cell] for cell in cells], dtype=np.int64))
    return Labels(found[0], found[1], names)


def _texts(column: Column) -> list[str]:
    for row, cell in enumerate(column.cells):
        if is_empty(cell) or not isinstance(cell, str | int | float):
            found = "an empty cell" if is_empty(cell) else type(cell).__name__
            raise DataError(f"{column.place(row)}: found {found}; need a class: fill it in or leave out the row")
    return [str(cell).strip() for cell in column.cells]


def _whole(column: Column) -> NDArray[np.int64] | None:
    """The class numbers, if all cells are whole numbers from 0 up."""
    values = np.empty(len(column.cells), dtype=np.int64)
    for row, cell in enumerate(column.cells):
        text = str(cell).strip()
        if isinstance(cell, bool) or not (text.isascii() and text.isdigit()):
            return None
        if len(text) > 9 or int(text) >= MOST_CLASSES:
            raise DataError(
                f"{column.place(row)}: found the class {text[:60]}; need numbers below {MOST_CLASSES}; for numbers "
                "that are no classes use objective=regression"
            )
        values[row] = int(text)
    return values


def _refuse_fractions(column: Column) -> None:
    parsed = [as_number(cell) for cell in column.cells if not isinstance(cell, bool)]
    if parsed and all(number is not None and number % 1 for number in parsed):
        raise DataError(
            f"{column.where}: found numbers such as {parsed[0]}; classes are whole numbers or names; for numbers use "
            "objective=regression"
        )
