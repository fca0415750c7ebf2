"""The events of a run, as written to `events.jsonl`: one JSON object per line, keys in the order of these fields.

The head phase, if any, comes first, then `before`, then the rounds. docs/results.md and its JSON schema are generated
from these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Failed:
    """A client that was asked and did not return a usable reply."""

    client: int
    """Number of the client, from 0."""
    cause: str
    """Identifier of the cause; the summary counts failures by it."""
    message: str
    """Human-readable message."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """Written once, before the first round of the main phase."""

    event: Literal["before"] = "before"
    """Kind of the event."""
    score: float
    """Score of the initial network, with its head fitted."""
    scores: dict[str, float]
    """All scores of the objective, by name."""
    accuracy: float | None = None
    """The score, where it is an accuracy (objective=classification)."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Common to the rounds of both phases."""

    event: Literal["round"] = "round"
    """Kind of the event."""
    phase: Literal["head", "main"]
    """Head fitting, or the method itself."""
    round: int
    """Number of the round, from 0 in each phase."""
    participants: tuple[int, ...]
    """Clients that were asked to train."""
    answered: int
    """How many of them contributed to the new state."""
    failures: tuple[Failed, ...]
    """Clients that did not contribute and, if clients are selected by loss, those that did not report one."""
    observations: dict[str, float]
    """Training metrics of the method, e.g. `loss`: means over the clients that answered."""
    score: float | None
    """Score after the round; null if not evaluated."""
    seconds: float
    """Duration from client selection to evaluation."""
    scores: dict[str, float] | None = None
    """All scores of the objective, by name; only if evaluated."""
    accuracy: float | None = None
    """The score, where it is an accuracy (objective=classification); only if evaluated."""


@dataclass(frozen=True, kw_only=True)
class HeadRound(Round):
    """The head phase, in which clients jointly fit the classifier. There is at most one such round."""

    phase: Literal["head"] = "head"
    link_seconds: float | None = None
    """Transmission time on the configured link; only if one is configured."""


@dataclass(frozen=True, kw_only=True)
class MainRound(Round):
    """A round of the method."""

    phase: Literal["main"] = "main"
    losses: dict[int, float] | None = None
    """Training loss of each client that reported one."""
    not_evaluated: tuple[Failed, ...] | None = None
    """Clients whose personal network could not be evaluated; only if there are any."""
    uplink_bpp: float
    """Uplink bits per parameter, client and round, averaged over the rounds so far."""
    total_bytes: int
    """Bytes in both directions up to this round, one-off costs included."""
    uplink_bytes: int | None = None
    """Bytes from all clients up to this round, without one-off costs; not in runs of earlier versions."""
    downlink_bytes: int | None = None
    """Bytes to all clients up to this round, likewise."""
    link_seconds: float | None = None
    """Transmission time of this round on the configured link; only if one is configured."""


Event = Before | HeadRound | MainRound


def read_event(line: Mapping[str, Any]) -> Event:
    """Parse an event. Raises KeyError, TypeError or ValueError if it is not an event of this version."""
    if line["event"] == "before":
        return Before(**line)
    kinds: dict[str, type[HeadRound | MainRound]] = {"head": HeadRound, "main": MainRound}
    if line["event"] != "round" or line["phase"] not in kinds:
        raise ValueError(f"{line['event']!r} is no event that this version knows")
    values = {**line, "participants": tuple(line["participants"])}
    for key in {"failures", "not_evaluated"} & line.keys():
        values[key] = _failed(line[key])
    if "losses" in values:
        values["losses"] = {int(client): loss for client, loss in line["losses"].items()}
    return kinds[line["phase"]](**values)


def _failed(entries: Iterable[Mapping[str, Any]]) -> tuple[Failed, ...]:
    return tuple(Failed(**entry) for entry in entries)
