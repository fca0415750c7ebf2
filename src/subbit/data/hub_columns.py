"""Columns of a Hugging Face data set by their roles, and what they say: labels and owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import DataError
from subbit.data.cells import Column, Labels, read_labels
from subbit.data.held_out import hold_out
from subbit.data.needs import Needs
from subbit.data.table_roles import TableOptions

COLUMNS = {"image": ("image", "img"), "text": ("text", "content"), "label": ("label", "fine_label", "labels")}
Options = dict[str, str]
Part = tuple[str, Any]
"""What a split is called, and its table."""


def find_column(where: str, role: str, options: Options, columns: Sequence[str]) -> str:
    wanted = (options[role],) if role in options else COLUMNS[role]
    for name in wanted:
        if name in columns:
            return name
    raise DataError(
        f"{where}: found the columns {', '.join(columns)}; need {' or '.join(wanted)}; name it with ?{role}=..."
    )


def values_of(table: Any, column: str) -> NDArray[Any]:
    return np.asarray(table.select_columns([column]).with_format("numpy")[:][column])


def owners_of(where: str, options: Options, table: Any) -> list[str] | None:
    if "owner" not in options:
        return None
    return [str(value) for value in values_of(table, find_column(where, "owner", options, table.column_names))]


def labels_of(train: Part, test: Part, options: Options, needs: Needs) -> tuple[Labels, int | None]:
    """The labels of both splits, and the number of classes if it is known."""
    if needs.label_kind == "token":
        return Labels.none(len(train[1]), len(test[1])), None
    names = [_label_names(*part, options) for part in (train, test)]
    values = [[values_of(table, name) for name in own] for (_, table), own in zip((train, test), names, strict=True)]
    if all(len(own) == 1 and own[0].dtype.kind in "iuf" for own in values):
        return Labels(values[0][0], values[1][0]), getattr(train[1].features[names[0][0]], "num_classes", None)
    columns = [
        [Column(f"{where}, column {name!r}", cells.tolist()) for name, cells in zip(own, found, strict=True)]
        for (where, _), own, found in zip((train, test), names, values, strict=True)
    ]
    labels = read_labels(columns[0], columns[1], needs)
    return labels, None if labels.names is None else len(labels.names)


def _label_names(where: str, table: Any, options: Options) -> list[str]:
    given, columns = options.get("label", ""), table.column_names
    if given in columns or "," not in given:
        return [find_column(where, "label", options, columns)]
    return [find_column(where, "label", {"label": name.strip()}, columns) for name in given.split(",")]


def held_out_rows(text: str, options: Options, table: Any, needs: Needs) -> tuple[Part, Part]:
    """A single split as two: the rows to train on and those to test on."""
    share = TableOptions({"test_share": options["test_share"]}, text).test_share
    by_class = needs.label_kind == "class"
    classes = values_of(table, find_column(text, "label", options, table.column_names)) if by_class else None
    train, test = hold_out(len(table), share, classes, owners_of(text, options, table), text)
    return (f"{text}, train", table.select(train)), (f"{text}, test", table.select(test))
