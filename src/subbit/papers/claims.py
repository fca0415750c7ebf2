"""What a protocol says that its paper prints. Names of rows and columns are checked when the file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

from subbit.core.errors import ConfigError
from subbit.core.values import nearest, require
from subbit.papers.metrics import METRICS
from subbit.papers.printed import Printed, printed

Operation = Literal["minus", "over"]
Sign = Literal["<", ">", "~"]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Printing:
    """One printed value of a row; `column` is None for the mean over all columns."""

    row: str
    column: str | None
    metric: str
    value: Printed


@dataclass(frozen=True)
class Derived:
    """left minus right, or left over right, in each column."""

    says: str
    metric: str
    left: str
    op: Operation
    right: str
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    says: str
    metric: str
    left: str
    sign: Sign
    right: str
    within: float = 0.0


@dataclass(frozen=True)
class Reading:
    """A contradiction of the paper: which row explains the printed number?"""

    id: str
    says: str
    metric: str
    column: str
    printed: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Computed:
    says: str
    function: str
    printed: str
    options: dict[str, Any] = field(default_factory=dict)
    times: float = 1.0
    """The computed number times this is in the printed unit."""
    tolerance: float = 0.0
    """Instead of the rounding of the printed number, if it is more."""
    reading: str = ""
    sign: Literal["=", "<", ">"] = "="
    """The paper says that it is the printed number, or at most or at least that."""
    alternative: bool = False
    """Another reading than the one that holds: shown, but the table's verdict does not depend on it."""


@dataclass(frozen=True)
class Impossible:
    says: str
    why: str
    printed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A value of a committed result that is not one of `subbit paper`."""

    row: str
    column: str
    metric: str
    file: str
    at: tuple[str, ...]
    times: float = 1.0
    spread_at: tuple[str, ...] = ()
    seeds: int = 1
    shrunk: str = ""
    """What was smaller than in the paper; empty: nothing."""


@dataclass(frozen=True)
class Claims:
    printed: tuple[Printing, ...]
    derived: tuple[Derived, ...]
    relations: tuple[Relation, ...]
    readings: tuple[Reading, ...]
    computed: tuple[Computed, ...]
    impossible: tuple[Impossible, ...]
    answers: tuple[Answer, ...]


NAMES = ("printed", "means", "derived", "relations", "readings", "computed", "impossible", "answers", "times")
"""Tables of a protocol that are claims."""


def read_claims(values: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str]) -> Claims:
    found = Claims(
        tuple(
            replace(each, value=each.value.times(float(values.get("times", {}).get(each.metric, 1))))
            for each in (*_printed(values.get("printed", {}), rows, columns), *_means(values.get("means", {}), rows))
        ),
        _all(Derived, values, "derived"),
        _all(Relation, values, "relations"),
        _all(Reading, values, "readings"),
        _all(Computed, values, "computed"),
        _all(Impossible, values, "impossible"),
        _all(Answer, values, "answers"),
    )
    for derived in found.derived:
        _known(f"[[derived]] {derived.says}", [derived.left, derived.right], rows)
        _known(f"[[derived]] {derived.says}: metric", [derived.metric], [*METRICS])
        require(
            len(derived.printed) == len(columns), f"[[derived]] {derived.says}: needs {len(columns)} printed values"
        )
    for relation in found.relations:
        where = f"[[relations]] {relation.says}"
        _known(f"{where}: metric", [relation.metric], [*METRICS])
        for reference in (relation.left, relation.right):
            row, _, column = reference.partition("@")
            _known(where, [row] if row else [], rows)
            _known(where, [column] if column else [], columns)
    for reading in found.readings:
        _known(f"[[readings]] {reading.id}", reading.rows, rows)
        _known(f"[[readings]] {reading.id}: metric", [reading.metric], [*METRICS])
        _known(f"[[readings]] {reading.id}", [reading.column], columns)
    for answer in found.answers:
        _known("[[answers]]", [answer.row], rows)
        _known("[[answers]]", [answer.column], columns)
        _known("[[answers]] metric", [answer.metric], [*METRICS])
    for text in [each.printed for each in found.readings] + [each.printed for each in found.computed]:
        printed(text)
    return found


def _printed(tables: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str]) -> list[Printing]:
    found = []
    for metric, table in tables.items():
        _known("[printed]", [metric], [*METRICS])
        for row, texts in table.items():
            where = f"[printed.{metric}] {row}"
            _known(where, [row], rows)
            listed = [texts] if isinstance(texts, str) else texts
            require(
                len(listed) == len(columns), f"{where}: {len(listed)} values; needs {len(columns)}, one for each column"
            )
            found += [
                Printing(row, column, metric, printed(text))
                for column, text in zip(columns, listed, strict=True)
                if text
            ]
    return found


def _means(tables: Mapping[str, Any], rows: Sequence[str]) -> list[Printing]:
    found = []
    for metric, table in tables.items():
        _known("[means]", [metric], [*METRICS])
        for row, text in table.items():
            _known(f"[means.{metric}] {row}", [row], rows)
            found.append(Printing(row, None, metric, printed(text)))
    return found


def _known(where: str, names: Sequence[str], among: Sequence[str]) -> None:
    for name in names:
        if name not in among:
            raise ConfigError(f"{where}: no {name!r}: {nearest(name, [*among])}")


def _all(kind: type[Made], values: Mapping[str, Any], key: str) -> tuple[Made, ...]:
    return tuple(_build(kind, given, f"[[{key}]]") for given in values.get(key, []))


def _build(kind: type[Made], given: Any, where: str) -> Made:
    require(isinstance(given, dict), f"{where}: needs a table")
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise ConfigError(f"{where} {key}: {nearest(key, [*known])}")
    try:
        made = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
    signs = ("=", "<", ">") if kind is Computed else get_args(Sign)
    for key, allowed in (("op", get_args(Operation)), ("sign", signs)):
        value = getattr(made, key, None)
        require(value is None or value in allowed, f"{where} {key}={value!r}: needs one of {', '.join(allowed)}")
    return made
