"""The one way onto the wire and off it again: a payload becomes a frame with an address, a frame a payload.

    channel = Channel(part, template)
    frame = channel.pack(payload, up(round_number, client), shared)
    payload, examples = channel.unpack(frame, up(round_number, client), shared)

Both sides make the same channel from what they know, so that a frame of anything else is refused before its payload is
looked at. Apart from `subbit.wire` itself, so that a frame can be read without loading a codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from subbit.codecs import Codec, Shared
from subbit.wire.frame import EVERYONE, MAXIMUM_EXAMPLES, Address, Direction, pack_frame, unpack_frame


@dataclass(frozen=True)
class Part:
    """One payload that travels in a direction: its name, its codec and its number of places."""

    name: str
    codec: Codec[Any]
    size: int
    optional: bool = False
    """The payload may be None: then no frame is sent for it, and None arrives."""
    one_off: bool = False
    """Sent once, such as a structure: counted beside the rounds, not in bits per parameter."""


@dataclass(frozen=True)
class Where:
    """Which way a frame goes, in which round, and which client's it is. See `down` and `up`."""

    direction: Direction
    round_number: int
    client: int


def down(round_number: int) -> Where:
    """A broadcast: the same frame for everyone."""
    return Where(Direction.DOWN, round_number, EVERYONE)


def up(round_number: int, client: int) -> Where:
    """What one client sends."""
    return Where(Direction.UP, round_number, client)


@dataclass(frozen=True)
class Channel:
    """What carries one part, in every round and for every client."""

    part: Part
    template: bytes
    """The hash of all that sender and receiver must agree on. It alone tells apart channels of the same codec and size,
    so whoever makes it puts into it what the channel is for."""
    number: int = 0
    """Which of the frames of a message this is."""

    def address(self, where: Where) -> Address:
        part = self.part
        return Address(
            where.direction, self.number, part.codec.number, self.template, where.round_number, where.client, part.size
        )

    def pack(self, payload: Any, where: Where, shared: Shared | None = None, examples: int = 0) -> bytes:
        """The frame that `unpack`, at the same place and with the same `shared`, takes apart."""
        return self.frame(self.part.codec.encode(payload, self._known(shared)), where, examples)

    def frame(self, encoded: bytes, where: Where, examples: int = 0) -> bytes:
        """For a sender that has encoded its payload already, because it needs to know what the codec lost."""
        return pack_frame(encoded, self.address(where), examples)

    def unpack(
        self, frame: bytes, where: Where, shared: Shared | None = None, maximum_examples: int = MAXIMUM_EXAMPLES
    ) -> tuple[Any, int]:
        """The payload and the number of examples behind it; `FrameError` for any other bytes."""
        encoded, examples = unpack_frame(frame, self.address(where), maximum_examples=maximum_examples)
        return self.part.codec.decode(encoded, self._known(shared)), examples

    def _known(self, shared: Shared | None) -> Shared:
        """Many codecs need to share nothing but the number of places."""
        return Shared(self.part.size) if shared is None else shared
