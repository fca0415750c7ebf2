"""Tables in files, as named columns: CSV and TSV with a heading, JSON lines, Parquet.

Memory is bounded by what has been read so far, never by a number in the file: reading stops when the cells would not
fit in the machine's memory. Rows are counted from 1, the heading of a CSV file is none.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from subbit.core.errors import DataError
from subbit.data.lookup import machine_memory

LONGEST_CELL = 1 << 24
LONGEST_LINE = 1 << 26
CELL_BYTES = 64
"""What a short cell takes as an object of Python."""
AT_ONCE = 1024
SHOWN = 30
Keep = Callable[[list[str]], Sequence[str]]
"""Of the names of all columns: those to keep."""


@dataclass(frozen=True)
class Table:
    where: str
    names: list[str]
    """Of all columns of the file."""
    columns: dict[str, list[Any]]
    """Those that are kept. Cells are texts, numbers, booleans or None."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass
class _Cells:
    """Collects rows, and refuses more than this machine can hold."""

    where: str
    names: list[str]
    kept: list[str]
    columns: list[list[Any]] = field(default_factory=list)
    taken: int = 0

    def __post_init__(self) -> None:
        self.columns = [[] for _ in self.kept]
        self._memory = machine_memory()

    def add(self, cells: Sequence[Any]) -> None:
        for column, cell in zip(self.columns, cells, strict=True):
            column.append(cell)
            self.taken += CELL_BYTES + (len(cell) if isinstance(cell, str) else 0)
        if self.taken > self._memory:
            raise DataError(
                f"{self.where}: the columns {', '.join(self.kept[:SHOWN])} take more than the {self._memory / 1e9:.1f} "
                "GB of memory of this machine; need fewer of them (features=...) or fewer rows"
            )

    @property
    def rows(self) -> int:
        return len(self.columns[0])

    def table(self) -> Table:
        if not self.rows:
            raise DataError(f"{self.where}: found no rows; need at least one")
        return Table(self.where, self.names, dict(zip(self.kept, self.columns, strict=True)))


def start(where: str, names: Sequence[Any], keep: Keep) -> _Cells:
    texts = [str(name) for name in names]
    twice = [name for name, count in Counter(texts).items() if count > 1]
    if not texts or twice:
        found = f"the column {twice[0]!r} twice" if twice else "no columns"
        raise DataError(f"{where}: found {found}; need names of columns, each once")
    return _Cells(where, texts, list(keep(texts)))


def read_table(path: Path, keep: Keep) -> Table:
    """The columns that `keep` chooses of the names."""
    kind = path.suffix.lower()
    try:
        size, memory = path.stat().st_size, machine_memory()
        if kind != ".parquet" and size > memory:  # A single line may be as long as the file.
            raise DataError(f"{path}: found {size} bytes; need at most {memory}, the memory of this machine")
        return TABLES[kind](path, keep)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found bytes that are not text in UTF-8 ({error.reason})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _read_csv(path: Path, keep: Keep) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return _read_separated(stream, str(path), ",", keep)


def _read_tsv(path: Path, keep: Keep) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return _read_separated(stream, str(path), "\t", keep)


def _read_separated(stream: IO[str], where: str, separator: str, keep: Keep) -> Table:
    rows = 0
    try:
        with _long_cells():
            reader = csv.reader(stream, delimiter=separator, strict=True)
            heading = [name.strip() for name in next(reader, [])]
            cells = start(where, heading, keep)
            places = [heading.index(name) for name in cells.kept]
            for row in reader:
                if not row:
                    continue  # An empty line.
                rows += 1
                if len(row) != len(heading):
                    raise DataError(
                        f"{where}, row {rows} (line {reader.line_num}): found {len(row)} values; need {len(heading)}, "
                        "one for each column of the heading"
                    )
                cells.add([row[place] for place in places])
    except csv.Error as error:
        raise DataError(f"{where}, row {rows + 1}: cannot be read ({error}); need a quote around such text") from error
    return cells.table()


@contextmanager
def _long_cells() -> Iterator[None]:
    """Documents may be longer than the 128 KB that the csv module allows; its limit is one for the whole process."""
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_json_lines(path: Path, keep: Keep) -> Table:
    cells: _Cells | None = None
    with path.open(encoding="utf-8-sig") as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            if not line.strip():
                continue
            number += 1
            where = f"{path}, row {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: cannot be read ({error}); need one JSON object per line") from error
            if not isinstance(row, dict):
                raise DataError(f"{where}: found a {type(row).__name__}; need one JSON object per line")
            cells = cells or start(str(path), list(row), keep)
            cells.add([row.get(name) for name in cells.kept])
    if cells is None:
        raise DataError(f"{path}: found no rows; need one JSON object per line")
    return cells.table()


def _read_parquet(path: Path, keep: Keep) -> Table:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            cells = start(str(path), file.schema_arrow.names, keep)
            for batch in file.iter_batches(batch_size=AT_ONCE, columns=cells.kept):
                columns = [batch.column(name).to_pylist() for name in cells.kept]
                for row in zip(*columns, strict=True):
                    cells.add(row)
    except (pyarrow.ArrowException, ValueError, KeyError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read ({reason}); need a Parquet file, whole and unharmed") from error
    return cells.table()


TABLES: dict[str, Callable[[Path, Keep], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}
"""By the end of a file's name."""
