"""Turn a payload into an addressed frame and a frame into a payload. All messages go through here.

    channel = Channel(part, template)
    frame = channel.pack(payload, up(round_number, client), shared)
    payload, examples = channel.unpack(frame, up(round_number, client), shared)

Both sides build the same channel from what they know, so any other frame is rejected before its payload is read. This
is not part of `subbit.wire` itself, so that a frame can be read without loading the codecs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from subbit.codecs import Codec, Shared
from subbit.wire.frame import EVERYONE, MAXIMUM_EXAMPLES, Address, Direction, pack_frame, unpack_frame


@dataclass(frozen=True)
class Part:
    """One payload that travels in a direction: its name, its codec and its number of positions."""

    name: str
    codec: Codec[Any]
    size: int
    optional: bool = False
    """The payload may be None. Then no frame is sent, and the receiver gets None."""
    one_off: bool = False
    """Sent once, e.g. a structure. Counted separately from the rounds and not in bits per parameter."""


@dataclass(frozen=True)
class Where:
    """Direction, round and client of a frame. See `down` and `up`."""

    direction: Direction
    round_number: int
    client: int


def down(round_number: int) -> Where:
    """A broadcast: all clients receive the same frame."""
    return Where(Direction.DOWN, round_number, EVERYONE)


def up(round_number: int, client: int) -> Where:
    """An upload of one client."""
    return Where(Direction.UP, round_number, client)


@dataclass(frozen=True)
class Channel:
    """Carries one part, in every round and for every client."""

    part: Part
    template: bytes
    """Hash of everything that sender and receiver must agree on. Nothing else distinguishes channels of the same codec
    and size, so the purpose of the channel must be part of it.
    """
    number: int = 0
    """Index of this frame within a message."""

    def address(self, where: Where) -> Address:
        part = self.part
        return Address(
            where.direction, self.number, part.codec.number, self.template, where.round_number, where.client, part.size
        )

    def pack(self, payload: Any, where: Where, shared: Shared | None = None, examples: int = 0) -> bytes:
        """Build the frame that `unpack` reads with the same `where` and `shared`."""
        return self.frame(self.part.codec.encode(payload, self._known(shared)), where, examples)

    def frame(self, encoded: bytes, where: Where, examples: int = 0) -> bytes:
        """Build a frame from an encoded payload, for senders that need to know what the codec lost."""
        return pack_frame(encoded, self.address(where), examples)

    def unpack(
        self, frame: bytes, where: Where, shared: Shared | None = None, maximum_examples: int = MAXIMUM_EXAMPLES
    ) -> tuple[Any, int]:
        """Return the payload and its number of examples; `FrameError` for any other bytes."""
        encoded, examples = unpack_frame(frame, self.address(where), maximum_examples=maximum_examples)
        return self.part.codec.decode(encoded, self._known(shared)), examples

    def _known(self, shared: Shared | None) -> Shared:
        """Many codecs share nothing but the number of positions."""
        return Shared(self.part.size) if shared is None else shared
