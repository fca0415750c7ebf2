"""A run in the list: what it is, how far it is, how well it does.

A finished run has all of it in its summary. Of an unfinished one the configuration and the last lines of the events are
read, however long they are.
"""

from __future__ import annotations

import errno
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from subbit.board.hostile_files import (
    UNREADABLE,
    Key,
    key_of,
    number,
    opened_file,
    read_record,
    read_whole,
    records_from_end,
    text,
    whole,
)
from subbit.core.locks import HOLDER, LOCK
from subbit.runtime.folder import EVENTS
from subbit.runtime.live_lines import LIVE

CONFIG, SUMMARY = "config.toml", "summary.json"
FILES = (CONFIG, SUMMARY, EVENTS, LIVE, HOLDER)
State = Literal["running", "finished", "stopped", "interrupted"]
"""`stopped`: with an error. `interrupted`: by Ctrl-C, or its process is gone."""
Keys = tuple[Key | None, ...]


@dataclass(frozen=True)
class Row:
    """As it is sent to the page. Bytes are both ways; times are seconds since 1970."""

    id: str
    name: str
    state: State
    started: float
    updated: float
    method: str | None = None
    model: str | None = None
    dataset: str | None = None
    clients: int | None = None
    rounds: int | None = None
    done: int = 0
    score_name: str | None = None
    score: float | None = None
    uplink_bytes: int | None = None
    downlink_bytes: int | None = None
    total_bytes: int | None = None
    failed: int | None = None
    """Failed client turns; only known at the end."""
    problem: str | None = None
    """Why the run stopped, or which file cannot be read."""


def keys_of(folder: int) -> Keys:
    """Another value whenever one of the files has changed."""
    return tuple(key_of(folder, name) for name in FILES)


def is_locked(folder: int) -> bool:
    """Whether a process runs in the folder.

    The lock is asked for as a reader, which does nothing while it is held. If it is free, it is had for an instant in
    which nobody else can take it. So ask once only: who takes it writes `running.json` anew.
    """
    try:
        import fcntl
    except ImportError:
        return key_of(folder, HOLDER) is not None  # Not known on this system: believe `running.json`.
    try:
        with opened_file(folder, LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Closing the file gives it back.
            return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


def read_row(folder: int, identity: tuple[str, str], keys: Keys, running: bool) -> Row:
    """`identity`: id and name. Everything that cannot be read is None."""
    config, summary, events, live, _ = keys
    times = [key[2] / 1e9 for key in (config, summary, events, live) if key is not None]
    started = config[2] / 1e9 if config is not None else max(times, default=0.0)
    updated = max(times, default=0.0)
    problems = []
    if summary is not None and not running:
        try:
            found = _of_summary(read_record(folder, SUMMARY))
            return Row(*identity, "finished", started, updated, **found)
        except UNREADABLE:
            problems.append(f"{SUMMARY} cannot be read")
    try:
        found = _of_config(tomllib.loads(read_whole(folder, CONFIG).decode()))
    except UNREADABLE:
        found = {}
        problems.append(f"{CONFIG} cannot be read")
    if events is not None:
        try:
            found |= _of_events(records_from_end(folder, EVENTS))
        except UNREADABLE:
            problems.append(f"{EVENTS} cannot be read")
    state: State = "running" if running else "interrupted"
    error = None if running else _why_it_stopped(folder)
    if error is not None and error != "interrupted":
        state = "stopped"
        problems.insert(0, error)
    return Row(*identity, state, started, updated, problem="; ".join(problems) or None, **found)


def _of_summary(found: dict[str, Any]) -> dict[str, Any]:
    """Runs of earlier versions only have accuracies."""
    names = ("uplink_bytes", "downlink_bytes", "total_bytes", "clients", "rounds")
    rounds = whole(found.get("rounds"))
    return {
        **{name: text(found.get(name)) for name in ("method", "model", "dataset")},
        **{name: whole(found.get(name)) for name in names},
        "done": rounds or 0,
        "score_name": text(found.get("score_name", "accuracy")),
        "score": number(found.get("score", found.get("accuracy"))),
        "failed": whole(found.get("failed_clients")),
    }


def _of_config(found: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: text(found.get(name)) for name in ("method", "model", "dataset")},
        **{name: whole(found.get(name)) for name in ("clients", "rounds")},
    }


def _of_events(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The last round, and the last score, which may be of an earlier one. The last record comes first."""
    found: dict[str, Any] = {}
    for record in records:
        if record.get("phase") == "main" and "done" not in found:
            names = ("uplink_bytes", "downlink_bytes", "total_bytes")
            found = {"done": (whole(record.get("round")) or 0) + 1, **{name: whole(record.get(name)) for name in names}}
        if (score := score_of(record)) is not None:
            return {**found, "score": score, "score_name": score_name_of(record)}
    return found


def score_of(record: dict[str, Any]) -> float | None:
    return number(record.get("score", record.get("accuracy")))


def score_name_of(record: dict[str, Any]) -> str | None:
    scores = record.get("scores")
    return text(next(iter(scores), None)) if isinstance(scores, dict) else "accuracy"


def _why_it_stopped(folder: int) -> str | None:
    try:
        last = next(records_from_end(folder, LIVE), {})
    except UNREADABLE:
        return None
    return text(last.get("error"), 2000) if last.get("event") == "stopped" else None
