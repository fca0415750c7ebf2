"""From payloads to frames and back, on both sides, with what both sides know.

A message is a tuple of frames, one per part, in the order in which the method lists its parts. The template in a
frame's header is a hash of the run's own name (drawn at its start), the trained parameters' names and shapes, the
phase, the method, the part and the codec with its options: a frame of another run, even of the same configuration, is
refused before its payload is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from subbit.codecs import Shared
from subbit.core.errors import FrameError
from subbit.methods.method import Method, Payloads
from subbit.runtime.client_memory import NO_MEMORY
from subbit.wire.channel import Channel, Part, Where
from subbit.wire.frame import EVERYONE, Direction

Phase = Literal["head", "main"]
Stage = Literal["head", "main", "snapshot"]
"""What a frame belongs to: a round of a phase, or what an incremental method's receivers hold."""
Frames = tuple[bytes, ...]
Purpose = Literal["train", "evaluate", "loss"]


@dataclass(frozen=True)
class Order:
    """What the server asks of one client: a broadcast, and which of its memories the client shall use."""

    phase: Phase
    round_number: int
    client: int
    frames: Frames
    head_frame: bytes | None = None
    """The fitted head, sent once, the first time a client takes part in the main phase."""
    kept: int = NO_MEMORY
    """The turn whose memory the client shall start from."""
    missed: tuple[Frames, ...] = ()
    """Broadcasts of the rounds just before this one, which an incremental method builds on."""
    snapshot: Frames = ()
    """What the others held before this round, instead of the missed broadcasts."""
    purpose: Purpose = "train"
    """`evaluate`: how good is the client's own network on its own test set? `loss`: and how bad is the network that was
    broadcast on its training data? Neither trains or keeps anything."""


@dataclass(frozen=True)
class Failure:
    cause: str
    message: str


@dataclass(frozen=True)
class Reply:
    """What came back: frames, or the reason why there are none."""

    client: int
    frames: Frames = ()
    failure: Failure | None = None
    kept: int = NO_MEMORY
    """The turn whose memory is to be asked for next time. What the client keeps stays with it."""
    observations: dict[str, float] = field(default_factory=dict)


def channel_of(method: Method[Any], stage: Stage, part: Part, number: int = 0) -> Channel:
    """What carries a part of this method, or anything else that its clients and the server exchange."""
    salt = f"{method.task.job}/{stage}/{method.name}/{part.name}/{part.codec!r}"
    return Channel(part, method.task.flat.template.digest(salt), number)


def encode_parts(
    method: Method[Any], stage: Stage, where: Where, payloads: Payloads, view: Any, examples: int = 0
) -> Frames:
    """One frame per part, an empty one where an optional part is left out."""
    frames = []
    for number, part in enumerate(parts_of(method, stage, where.direction)):
        payload = payloads[part.name]
        if part.optional and payload is None:
            frames.append(b"")
            continue
        shared = _shared(method, part, view, where)
        frames.append(channel_of(method, stage, part, number).pack(payload, where, shared, examples))
    return tuple(frames)


def decode_parts(
    method: Method[Any], stage: Stage, where: Where, frames: Sequence[bytes], view: Any
) -> tuple[Payloads, int]:
    """The payloads and the number of examples behind them; `FrameError` for anything that was not expected."""
    parts = parts_of(method, stage, where.direction)
    if len(frames) != len(parts):
        raise FrameError("length", f"the message has {len(frames)} frames, expected {len(parts)}")
    payloads: Payloads = {}
    examples, most = 0, method.task.most_examples(where.client)
    for number, (part, frame) in enumerate(zip(parts, frames, strict=True)):
        if part.optional and not frame:
            payloads[part.name] = None
            continue
        shared = _shared(method, part, view, where)
        payloads[part.name], examples = channel_of(method, stage, part, number).unpack(frame, where, shared, most)
    return payloads, examples


def _shared(method: Method[Any], part: Part, view: Any, where: Where) -> Shared:
    """What both sides know before the part arrives. What is for everyone is drawn as for client 0."""
    return method.shared(part, view, where.round_number, 0 if where.client == EVERYONE else where.client)


def parts_of(method: Method[Any], stage: Stage, direction: Direction) -> tuple[Part, ...]:
    changes = method.changes
    if stage == "snapshot" and changes is not None:
        return changes.snapshot_parts()
    return method.down_parts() if direction is Direction.DOWN else method.up_parts()
