"""Encodes payloads to frames and decodes them, on both sides.

A message is a tuple of frames, one per part, in the order of the method's parts. The template in a frame's header is a
hash of the run's identifier (drawn at its start), the names and shapes of the trained parameters, the phase, the
method, the part and the codec with its options. A frame of another run, even with the same configuration, is rejected
before its payload is read.
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
"""What a frame belongs to: a round of a phase, or a snapshot for an incremental method."""
Frames = tuple[bytes, ...]
Purpose = Literal["train", "evaluate", "start", "loss"]


@dataclass(frozen=True)
class Order:
    """The server's request to one client: a broadcast, and the memory to start from."""

    phase: Phase
    round_number: int
    client: int
    frames: Frames
    head_frame: bytes | None = None
    """The fitted head, sent once, when a client first participates in the main phase."""
    kept: int = NO_MEMORY
    """The turn whose memory the client starts from."""
    missed: tuple[Frames, ...] = ()
    """Broadcasts of the missed rounds before this one, needed by an incremental method."""
    snapshot: Frames = ()
    """What the others held before this round, instead of the missed broadcasts."""
    purpose: Purpose = "train"
    """`train`; `evaluate`: how the client's own network, or the broadcast one, does on its own test set; `start`: how
    the network does from which the main phase starts; `loss`: loss of the broadcast network on its training data. The
    last three neither train nor keep anything."""


@dataclass(frozen=True)
class Failure:
    cause: str
    message: str


@dataclass(frozen=True)
class Reply:
    """A client's reply: frames, or the reason why there are none."""

    client: int
    frames: Frames = ()
    failure: Failure | None = None
    kept: int = NO_MEMORY
    """The turn whose memory to request next time. The memory itself stays with the client."""
    observations: dict[str, float] = field(default_factory=dict)


def channel_of(method: Method[Any], stage: Stage, part: Part, number: int = 0) -> Channel:
    """The channel of a part of this method, or of anything else that clients and server exchange."""
    salt = f"{method.task.job}/{stage}/{method.name}/{part.name}/{part.codec!r}"
    return Channel(part, method.task.flat.template.digest(salt), number)


def encode_parts(
    method: Method[Any], stage: Stage, where: Where, payloads: Payloads, view: Any, examples: int = 0
) -> Frames:
    """One frame per part; empty for an omitted optional part."""
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
    """The payloads and their number of examples; raises `FrameError` for anything unexpected."""
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
    """What both sides know before the part arrives. Broadcasts to all clients use the draws of client 0."""
    return method.shared(part, view, where.round_number, 0 if where.client == EVERYONE else where.client)


def parts_of(method: Method[Any], stage: Stage, direction: Direction) -> tuple[Part, ...]:
    changes = method.changes
    if stage == "snapshot" and changes is not None:
        return changes.snapshot_parts()
    return method.down_parts() if direction is Direction.DOWN else method.up_parts()
