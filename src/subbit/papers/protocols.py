"""Protocols of the papers' tables and figures: experiments/papers/NNN/NAME.toml, one file for each.

from = "common"             another file of the folder, whose keys hold where this one has none
runs_of = "table-2"         take rows, columns, runs and answers from there: a figure of the same runs
what = "one line"           kind = "table", "figure", "lemma", "section"
drawing = true              there is nothing to measure
seeds = 3
[base]                      keys of all runs, as in the file of a run: the paper's own protocol
[rows.NAME]                 run = a contender; reading = "D7", if the row is one reading of a contradiction;
                            missing = why it cannot be run; via = another way to a result
[columns.NAME]              keys of the runs of this column; missing, as above
[printed.METRIC]            ROW = ["93.50 ±0.019", ...], in the order of the columns, "" where nothing is printed
[means.METRIC]              ROW = "85.44": printed as the mean over all columns
[[derived]]                 says, metric, left, op (minus, over), right, printed: differences or ratios of rows
[[relations]]               says, metric, left, sign (<, >, ~), right, within: rows, `ROW@COLUMN` or `@COLUMN`
[[readings]]                id, says, metric, column, printed, rows: which of the rows explains the number
[[computed]]                says, function, options, printed, times: a number that needs no run (computed.py)
[[impossible]]              says, printed, why
[[answers]]                 row, column, metric, file, at, times, spread_at, seeds, shrunk: a committed result
[tolerance]                 METRIC = number, see verdicts.py
[times]                     METRIC = 100, where the paper prints shares and we have percent
[paper] [cpu] [smoke]       shrunk = what was made smaller, in words; seeds; only_rows, only_columns: run only these;
                            none = why nothing is run; keys that replace those above: [cpu.base] for all runs,
                            [cpu.columns.NAME] for a column, [cpu.words.NAME] for a row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from subbit.config.resolve import read_toml
from subbit.core.errors import ConfigError
from subbit.core.values import build, nearest, require
from subbit.papers.claims import NAMES, Claims, read_claims

SCALES = ("paper", "cpu", "smoke")
PARTS = ("base", "rows", "columns", "printed", "means", "tolerance")
COMMON = "common.toml"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Header:
    """The keys of a file outside its tables."""

    what: str = ""
    kind: Literal["table", "figure", "lemma", "section"] = "table"
    drawing: bool = False
    runs_of: str = ""
    note: str = ""
    """Contradictions and what was decided, for people."""
    seeds: int = 3
    first_seed: int = 0

    def __post_init__(self) -> None:
        require(self.what != "", "what: needs a line that says what the paper shows")
        require(self.seeds >= 1, f"seeds={self.seeds}: needs at least 1")


@dataclass(frozen=True)
class Row:
    run: str = ""
    reading: str = ""
    missing: str = ""
    via: str = ""
    """Another way from settings to a result than a plain run, see via.py."""


@dataclass(frozen=True)
class Scale:
    """What is done at one scale."""

    shrunk: tuple[str, ...] = ()
    seeds: int | None = None
    only_rows: tuple[str, ...] | None = None
    only_columns: tuple[str, ...] | None = None
    base: dict[str, Any] = field(default_factory=dict)
    words: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Keys of single rows."""
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    none: str = ""
    """Why nothing is run at this scale."""


@dataclass(frozen=True)
class Protocol:
    paper: str
    name: str
    path: Path
    header: Header
    base: dict[str, Any]
    rows: dict[str, Row]
    columns: dict[str, dict[str, Any]]
    claims: Claims
    tolerance: dict[str, float]
    scales: dict[str, Scale]
    runs_in: str
    """The protocol whose runs these are; mostly its own name."""

    @property
    def label(self) -> str:
        return f"{self.paper}/{self.name}"

    def missing(self, row: str, column: str) -> str:
        """Why this cell cannot be run by anybody; empty if it can."""
        return self.rows[row].missing or str(self.columns[column].get("missing", ""))


def read_protocol(path: Path) -> Protocol:
    try:
        return _read(path)
    except ConfigError as error:
        raise error if str(error).startswith(str(path)) else ConfigError(f"{path}: {error}") from None


def read_protocols(folder: Path) -> dict[str, Protocol]:
    """All of them by label, e.g. `000/table-2`."""
    paths = sorted(folder.glob("[0-9][0-9][0-9]/*.toml"), key=lambda path: (path.parent.name, _natural(path.stem)))
    found = [read_protocol(path) for path in paths if path.name != COMMON]
    if not found:
        raise ConfigError(f"{folder}: found no protocol; needs TOML files such as experiments/papers/000/table-2.toml")
    return {each.label: each for each in found}


def _natural(stem: str) -> tuple[str, float]:
    """So that table-10 comes after table-9."""
    kind, _, number = stem.partition("-")
    return kind, float(number) if number.replace(".", "", 1).isdigit() else 0.0


def _read(path: Path) -> Protocol:
    values = _with_common(path)
    header_values = {key: value for key, value in values.items() if not isinstance(value, dict | list)}
    header = build(Header, header_values)
    runs_in = header.runs_of or path.stem
    if header.runs_of:
        require(path.stem != header.runs_of, f"runs_of={header.runs_of}: is this file")
        inherited = _with_common(path.with_name(f"{header.runs_of}.toml"))
        for key in ("base", "rows", "columns", "answers", *SCALES):
            if key in inherited:
                values.setdefault(key, inherited[key])
        if "seeds" not in header_values:
            header = build(Header, {**header_values, "seeds": inherited.get("seeds", Header.seeds)})
    tables = {key: _table(values, key) for key in (*PARTS, *SCALES)}
    rows = {name: build(Row, dict(given)) for name, given in tables["rows"].items()}
    columns = {name: dict(given) for name, given in tables["columns"].items()}
    if rows and not columns:
        columns = {"": {}}
    claims = read_claims(values, [*rows], [*columns])
    known = {*PARTS, *SCALES, *NAMES, "from"}
    for key, value in values.items():
        if isinstance(value, dict | list) and key not in known:
            raise ConfigError(f"unknown table [{key}]: {nearest(key, sorted(known))}")
    require(
        not header.drawing or not (rows or claims.computed), "drawing: there is nothing to measure, so leave out rows"
    )
    return Protocol(
        paper=path.parent.name,
        name=path.stem,
        path=path,
        header=header,
        base=tables["base"],
        rows=rows,
        columns=columns,
        claims=claims,
        tolerance={key: float(value) for key, value in tables["tolerance"].items()},
        scales={
            name: _scale(name, tables[name], rows, columns) for name in SCALES if name == "paper" or name in values
        },
        runs_in=runs_in,
    )


def _with_common(path: Path) -> dict[str, Any]:
    values = read_toml(path)
    common = values.pop("from", None)
    if common is None:
        return values
    return _merged(_with_common(path.with_name(f"{common}.toml")), values)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, everything else is replaced. `rows` and `columns` are replaced too: their order matters."""
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict) and key not in ("rows", "columns")
        found[key] = _merged(found[key], value) if both else value
    return found


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{key} is {found!r}; needs a table [{key}]")
    return found


def _scale(name: str, given: Mapping[str, Any], rows: Mapping[str, Any], columns: Mapping[str, Any]) -> Scale:
    known = {*Scale.__dataclass_fields__}
    for key in given:
        require(key in known, f"[{name}] {key}: {nearest(key, sorted(known))}")
    checks: list[tuple[str, Callable[[], Any], Mapping[str, Any]]] = [
        ("only_rows", lambda: given.get("only_rows") or [], rows),
        ("words", lambda: given.get("words", {}), rows),
        ("only_columns", lambda: given.get("only_columns") or [], columns),
        ("columns", lambda: given.get("columns", {}), columns),
    ]
    for key, names, among in checks:
        for each in names():
            require(each in among, f"[{name}] {key}: no {each!r}: {nearest(each, [*among])}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Scale(**values)
