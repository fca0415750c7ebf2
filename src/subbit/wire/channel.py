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

import numpy as np

from subbit.codecs import Codec, Kind, Shared
from subbit.core.blame import blaming, one_line, place_of
from subbit.core.errors import FrameError, PayloadError
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
        codec = self.part.codec
        with blaming(f"codec {codec.name!r}, encode", type(codec)):
            encoded = codec.encode(payload, self._known(shared))
        return self.frame(encoded, where, examples)

    def frame(self, encoded: bytes, where: Where, examples: int = 0) -> bytes:
        """Build a frame from an encoded payload, for senders that need to know what the codec lost."""
        return pack_frame(encoded, self.address(where), examples)

    def unpack(
        self, frame: bytes, where: Where, shared: Shared | None = None, maximum_examples: int = MAXIMUM_EXAMPLES
    ) -> tuple[Any, int]:
        """Return the payload and its number of examples; `FrameError` for any other bytes."""
        encoded, examples = unpack_frame(frame, self.address(where), maximum_examples=maximum_examples)
        return self._decoded(encoded, self._known(shared)), examples

    def _decoded(self, encoded: bytes, shared: Shared) -> Any:
        """Whatever goes wrong in a decoder, these bytes are rejected."""
        codec = self.part.codec
        try:
            payload = codec.decode(encoded, shared)
        except FrameError:
            raise
        except Exception as error:
            raise PayloadError(f"codec {codec.name!r}, decode: {one_line(error)}{place_of(error)}") from error
        if codec.kind is Kind.VECTOR and np.shape(payload) != (shared.size,):
            raise PayloadError(
                f"codec {codec.name!r} decoded {self.part.name!r} to {list(np.shape(payload))} values, expected "
                f"[{shared.size}]"
            )
        return payload

    def _known(self, shared: Shared | None) -> Shared:
        """Many codecs share nothing but the number of positions."""
        return Shared(self.part.size) if shared is None else shared
