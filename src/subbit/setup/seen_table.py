"""The columns of a table, looked at for `subbit init`: which is the label, which are inputs, who owns a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from subbit.core.errors import DataError

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
LOOKED_AT = 5000  # Rows.
LABELS = ("label", "class", "target", "category", "topic", "species", "y", "price", "value")
TEXTS = ("text", "body", "sentence", "content", "review", "message")
PICTURES = ("image", "file", "path", "picture")
OWNERS = ("owner", "user", "client", "writer", "speaker", "device", "site", "hospital", "author")
MOST_CLASSES = 100
Row = dict[str, Any]


@dataclass(frozen=True)
class SeenTable:
    told: str
    inputs: str
    objective: str
    classes: list[str]
    options: str
    """Behind the name of the file."""
    owners: int
    """Different owners in these rows; 0 if rows have none."""
    rows: int | None
    """None if there are more than were looked at."""
    shape: str


def look_at_table(path: Path, label: str | None) -> SeenTable:
    rows, names = _rows(path)
    if not rows:
        raise DataError(f"{path}: found no rows; need a heading and at least one row, or an object per line")
    if label is not None and label not in names:
        raise DataError(f"{path}: there is no column {label!r}; the columns are {', '.join(names)}")
    owner = _called(OWNERS, names, label)
    text = _called(TEXTS, names, label)
    picture = None if text else _called(PICTURES, [name for name in names if _is_picture(rows, name)], label)
    found = label or _called(LABELS, names, None)
    if found is None and text is None:
        raise DataError(
            f"{path}: which column is the label? The columns are {', '.join(names)}: give --label COLUMN; a table "
            "without labels cannot be learnt from, unless it has texts to continue (a column text)"
        )
    many = len(rows) == LOOKED_AT
    told = f"{'more than ' if many else ''}{len(rows)} rows, columns {', '.join(names)}"
    options: dict[str, str] = {}
    inputs, objective, shape = "text", "language", ""
    classes: list[str] = []
    if found is not None:
        objective, classes = _objective(path, rows, found, many)
        options["label"] = found
        told += f"; label {found}, " + (f"{len(classes)} classes" if classes else "a number")
    if text is not None:
        options["text"] = text
        options |= {"pack": "true"} if found is None else {"tokenizer": "bytes"}
        told += f"; texts in {text}" + ("" if found else ", without labels: to be continued")
    elif picture is not None:
        inputs = "images"
        options |= {"image": picture, "size": "32"}
        shape = "uint8 3x32x32"
    else:
        inputs, numbers = "numbers", _numbers(rows, names, found, owner)
        if not numbers:
            raise DataError(f"{path}: no column has numbers or texts (a column text); the columns are {told}")
        options["scale"] = "true"
        shape = f"float32 {len(numbers)}"
        told += f"; {len(numbers)} columns of numbers"
    if owner is not None:
        options["owner"] = owner
        told += f"; rows belong to {owner}"
    written = "&".join(f"{key}={quote_plus(value)}" for key, value in options.items())
    owners = 0 if owner is None else len({str(row.get(owner)) for row in rows})
    return SeenTable(told, inputs, objective, classes, written, owners, None if many else len(rows), shape)


def _rows(path: Path) -> tuple[list[Row], list[str]]:
    try:
        rows = list(islice(_read(path), LOOKED_AT))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as a table: {error}") from None
    return rows, list(rows[0]) if rows else []


def _read(path: Path) -> Iterator[Row]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8-sig", newline="") as stream:
        if kind in (".csv", ".tsv"):
            for row in csv.DictReader(stream, delimiter="," if kind == ".csv" else "\t"):
                yield {str(name).strip(): cell for name, cell in row.items() if name is not None}
            return
        for line in filter(str.strip, stream):
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError("a line is no object; need {...} in each line")
            yield found


def _called(wanted: tuple[str, ...], names: list[str], taken: str | None) -> str | None:
    """The first column with one of these names, whatever their case."""
    lower = {name.lower(): name for name in reversed(names) if name != taken}
    return next((lower[name] for name in wanted if name in lower), None)


def _objective(path: Path, rows: list[Row], label: str, many: bool) -> tuple[str, list[str]]:
    """Classes where labels are words or few whole numbers, else a number."""
    cells = [str(row.get(label) if row.get(label) is not None else "").strip() for row in rows]
    if "" in cells:
        raise DataError(f"{path}, row {cells.index('') + 1}: the label {label} is empty; remove the row or fill it in")
    values = sorted(set(cells))
    if all(_is_number(cell) for cell in cells):
        whole = all(cell.lstrip("-").isdigit() for cell in cells)
        if not whole or int(min(values, key=float)) < 0 or len(values) > min(MOST_CLASSES, max(2, len(rows) // 2)):
            return "regression", []
        return "classification", [str(number) for number in range(max(map(int, values)) + 1)]
    if len(values) < 2:
        raise DataError(f"{path}: every row has the label {values[0]!r}; need two classes at least")
    if len(values) > max(2, len(rows) // 2) and not many:
        raise DataError(
            f"{path}: {label} has {len(values)} different values in {len(rows)} rows, which are no classes: give "
            "another --label"
        )
    return "classification", values


def _numbers(rows: list[Row], names: list[str], label: str | None, owner: str | None) -> list[str]:
    def first(name: str) -> Any:
        return next((row[name] for row in rows if row.get(name) not in (None, "")), None)

    return [name for name in names if name not in (label, owner) and _is_number(first(name))]


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _is_picture(rows: list[Row], name: str) -> bool:
    return str(rows[0].get(name)).lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".bmp"))
