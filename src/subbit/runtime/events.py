"""What happens in a run, as `events.jsonl` tells it: one JSON object per line, in the order of the fields here.

The head phase, if there is one, comes first, then `before`, then the rounds. docs/results.md and its JSON schema are
made of these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Failed:
    """A client that was asked and gave nothing that could be used."""

    client: int
    """Its number, from 0."""
    cause: str
    """One stable word, by which the summary counts."""
    message: str
    """For people."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """Written once, before the first round of the main phase."""

    event: Literal["before"] = "before"
    """Which kind of line this is."""
    accuracy: float
    """Of the network from which the rounds start, with its head fitted."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What rounds of both phases have in common."""

    event: Literal["round"] = "round"
    """Which kind of line this is."""
    phase: Literal["head", "main"]
    """Fitting the head, or the method itself."""
    round: int
    """From 0, in each phase."""
    participants: tuple[int, ...]
    """The clients that were asked to train."""
    answered: int
    """How many of them are in the new state."""
    failures: tuple[Failed, ...]
    """Those that are not, and, where clients are chosen by their loss, those that did not tell it."""
    observations: dict[str, float]
    """What the method says about training, e.g. `loss`: means over the clients that answered."""
    accuracy: float | None
    """After the round; null where it was not evaluated."""
    seconds: float
    """From the choice of clients to the evaluation."""


@dataclass(frozen=True, kw_only=True)
class HeadRound(Round):
    """The head phase: clients fit the classifier together. There is one such round, or none."""

    phase: Literal["head"] = "head"
    link_seconds: float | None = None
    """On the wire, at the link that the configuration names; only where it names one."""


@dataclass(frozen=True, kw_only=True)
class MainRound(Round):
    """A round of the method."""

    phase: Literal["main"] = "main"
    not_evaluated: tuple[Failed, ...] | None = None
    """Clients with networks of their own that could not say how good theirs is; only where there are any."""
    uplink_bpp: float
    """Bits per parameter, client and round on the way up, from the first round to this one."""
    total_bytes: int
    """Both ways, one-off costs included, up to this round."""
    link_seconds: float | None = None
    """On the wire in this round, at the link that the configuration names; only where it names one."""


Event = Before | HeadRound | MainRound


def read_event(line: Mapping[str, Any]) -> Event:
    """An event from its JSON. KeyError, TypeError or ValueError where it is not one of this version."""
    if line["event"] == "before":
        return Before(**line)
    kinds: dict[str, type[HeadRound | MainRound]] = {"head": HeadRound, "main": MainRound}
    if line["event"] != "round" or line["phase"] not in kinds:
        raise ValueError(f"{line['event']!r} is no event that this version knows")
    values = {**line, "participants": tuple(line["participants"])}
    for key in {"failures", "not_evaluated"} & line.keys():
        values[key] = _failed(line[key])
    return kinds[line["phase"]](**values)


def _failed(entries: Iterable[Mapping[str, Any]]) -> tuple[Failed, ...]:
    return tuple(Failed(**entry) for entry in entries)
