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

from subbit.errors import FrameError
from subbit.methods.base import Method, Part, Payloads
from subbit.methods.incremental import as_incremental
from subbit.runtime.memory import NO_MEMORY
from subbit.wire.frame import Address, Direction, pack_frame, unpack_frame

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


def address(
    method: Method[Any], stage: Stage, direction: Direction, index: int, part: Part, round_number: int, client: int
) -> Address:
    salt = f"{method.task.job}/{stage}/{method.name}/{part.name}/{part.codec!r}"
    template = method.task.flat.template.digest(salt)
    return Address(direction, index, part.codec.number, template, round_number, client, part.size)


def encode_parts(
    method: Method[Any],
    stage: Stage,
    direction: Direction,
    payloads: Payloads,
    view: Any,
    round_number: int,
    client: int,
    receiver: int,
    examples: int = 0,
) -> Frames:
    """One frame per part, an empty one where an optional part is left out.

    `client` is whose shared randomness it is, `receiver` what the header says.
    """
    frames = []
    for index, part in enumerate(parts_of(method, stage, direction)):
        if part.optional and payloads[part.name] is None:
            frames.append(b"")
            continue
        payload = part.codec.encode(payloads[part.name], method.shared(part, view, round_number, client))
        where = address(method, stage, direction, index, part, round_number, receiver)
        frames.append(pack_frame(payload, where, examples))
    return tuple(frames)


def decode_parts(
    method: Method[Any],
    stage: Stage,
    direction: Direction,
    frames: Sequence[bytes],
    view: Any,
    round_number: int,
    client: int,
    receiver: int,
) -> tuple[Payloads, int]:
    """The payloads and the number of examples behind them; `FrameError` for anything that was not expected."""
    parts = parts_of(method, stage, direction)
    if len(frames) != len(parts):
        raise FrameError("length", f"the message has {len(frames)} frames, expected {len(parts)}")
    payloads: Payloads = {}
    examples = 0
    for index, (part, frame) in enumerate(zip(parts, frames, strict=True)):
        if part.optional and not frame:
            payloads[part.name] = None
            continue
        where = address(method, stage, direction, index, part, round_number, receiver)
        payload, examples = unpack_frame(frame, where, maximum_examples=method.task.most_examples(client))
        payloads[part.name] = part.codec.decode(payload, method.shared(part, view, round_number, client))
    return payloads, examples


def parts_of(method: Method[Any], stage: Stage, direction: Direction) -> tuple[Part, ...]:
    incremental = as_incremental(method)
    if stage == "snapshot" and incremental is not None:
        return incremental.snapshot_parts()
    return method.down_parts() if direction is Direction.DOWN else method.up_parts()
