"""The lines of `live.jsonl`: what has happened so far in the round in progress.

The tables in docs/results.md are generated from these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LIVE = "live.jsonl"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Clients are asked. Most rounds have one such line, more if clients are also asked for a loss or a score."""

    event: Literal["asked"] = "asked"
    """Kind of the line."""
    at: float
    """When, in seconds since 1970."""
    phase: Literal["head", "main"]
    """Head fitting, or the method itself."""
    round: int
    """Number of the round, from 0 in each phase."""
    purpose: Literal["train", "evaluate", "start", "loss"]
    """What for: training, a score of the trained or of the initial network, or a loss by which clients are selected."""
    clients: tuple[int, ...]
    """Clients that are asked."""


@dataclass(frozen=True, kw_only=True)
class Replied:
    """A reply arrived, or it is certain that none will. Whether the server accepts it is in `events.jsonl`."""

    event: Literal["replied"] = "replied"
    """Kind of the line."""
    client: int
    """Number of the client, from 0."""
    seconds: float
    """Time since the clients were asked."""
    bytes: int
    """Bytes of the reply."""
    cause: str | None = None
    """Identifier of the cause, if the client failed."""
    message: str | None = None
    """Human-readable message, if the client failed."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The run ended without a result. Not written if its process was killed."""

    event: Literal["stopped"] = "stopped"
    """Kind of the line."""
    at: float
    """When, in seconds since 1970."""
    error: str
    """The error message, or `interrupted`."""
