"""The course of a run that somebody looks at: a point for each round, and the round in progress.

Files are read once and then only as far as they have grown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from subbit.board.hostile_files import GrowingFile, number, text, whole
from subbit.board.run_row import score_name_of, score_of
from subbit.runtime.folder import EVENTS
from subbit.runtime.live_lines import LIVE

Record = dict[str, Any]
MOST_FAILURES = 100
"""Of one round; more are only counted."""
MOST_CLIENTS = 1000
"""Of the round in progress; of more, only those that failed are listed."""


@dataclass(frozen=True)
class Course:
    """What there is at one moment. `points` grows; if it does not continue the earlier one, `generation` differs."""

    generation: int
    version: int
    points: list[Record]
    before: float | None
    live: Record | None
    damaged: int


@dataclass
class CourseReader:
    """Reads the course of one run again and again."""

    generation: int = 0
    version: int = 0
    points: list[Record] = field(default_factory=list)
    before: float | None = None
    _events: GrowingFile = field(default_factory=lambda: GrowingFile(EVENTS))
    _news: GrowingFile = field(default_factory=lambda: GrowingFile(LIVE))
    _round: _Round | None = None

    def read(self, folder: int) -> Course:
        records, fresh = self._events.read(folder)
        if fresh:
            self.generation, self.points, self.before = self.generation + 1, [], None
        for record in records:
            if record.get("event") == "before":
                self.before = score_of(record)
            elif record.get("event") == "round":
                self.points.append(_point(record))
        news, anew = self._news.read(folder)
        if anew:
            self._round = None
        for line in news:
            self._round = _followed(self._round, line)
        self.version += bool(records or fresh or news or anew)
        live = None if self._round is None else self._round.as_record(self.points[-1:])
        return Course(
            self.generation, self.version, self.points, self.before, live, self._events.damaged + self._news.damaged
        )


def _point(record: Record) -> Record:
    head = record.get("phase") == "head"
    failures = [each for each in _list(record.get("failures")) if isinstance(each, dict)]
    return {
        "phase": "head" if head else "main",
        "round": whole(record.get("round")),
        "score": score_of(record),
        "score_name": score_name_of(record),
        "total_bytes": whole(record.get("total_bytes")),
        "asked": len(_list(record.get("participants"))),
        "answered": whole(record.get("answered")),
        "seconds": number(record.get("seconds")),
        "failed": len(failures),
        "failures": [_failure(each) for each in failures[:MOST_FAILURES]],
    }


def _failure(record: Record) -> Record:
    found = {"cause": text(record.get("cause")), "message": text(record.get("message"))}
    return {"client": whole(record.get("client")), **found}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


@dataclass
class _Round:
    """The round in progress, or the last one of a run that stopped in it."""

    phase: str | None
    number: int | None
    purpose: str | None
    clients: list[int]
    replies: dict[int, Record] = field(default_factory=dict)
    failures: dict[int, Record] = field(default_factory=dict)
    """Also of what was asked before in this round."""

    def as_record(self, last: Iterable[Record]) -> Record:
        """With the server's verdict, which comes with the end of the round: it may have refused a reply."""
        trained = (self.number or 0) - (self.purpose == "evaluate")  # A score is asked for after the round.
        over = any(point["phase"] == self.phase and point["round"] == trained for point in last)
        failures = {**self.failures}
        for point in last if over else ():
            failures |= {failed["client"]: failed for failed in point["failures"]}
        listed = [client for client in self.clients if len(self.clients) <= MOST_CLIENTS or client in failures]
        return {
            "phase": self.phase,
            "round": trained,
            "purpose": self.purpose,
            "over": over,
            "asked": len(self.clients),
            "arrived": sum("cause" not in reply for reply in self.replies.values()),
            "failures": list(failures.values())[:MOST_FAILURES],
            "clients": [{"client": each, **self.replies.get(each, {})} | failures.get(each, {}) for each in listed],
        }


def _followed(now: _Round | None, line: Record) -> _Round | None:
    """The round after one more line."""
    if line.get("event") == "asked":
        clients = [client for each in _list(line.get("clients")) if (client := whole(each)) is not None]
        asked = _Round(text(line.get("phase")), whole(line.get("round")), text(line.get("purpose")), clients)
        same = now is not None and (now.phase, now.number) == (asked.phase, asked.number)
        if now is not None and (same or asked.purpose == "evaluate"):
            asked.failures = now.failures
        return asked
    client = whole(line.get("client"))
    if now is not None and line.get("event") == "replied" and client is not None:
        reply = {"client": client, "bytes": whole(line.get("bytes")), "seconds": number(line.get("seconds"))}
        if "cause" in line:
            reply |= _failure(line)
            now.failures[client] = _failure(line)
        now.replies[client] = reply
    return now
