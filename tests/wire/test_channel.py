"""A payload goes through a channel unchanged, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from subbit.codecs import Shared, make_codec
from subbit.core.errors import FrameError, PayloadError
from subbit.wire.channel import Channel, Part, down, up
from subbit.wire.frame import EVERYONE, HEADER_BYTES, Direction, read_header

VECTOR = np.array([1.5, -2.0, 0.25], np.float32)
CHANNEL = Channel(Part("weights", make_codec("dense"), 3), b"template")
HERE = up(7, 5)


def test_a_payload_comes_back_with_its_examples() -> None:
    frame = CHANNEL.pack(VECTOR, HERE, examples=11)
    payload, examples = CHANNEL.unpack(frame, HERE)
    assert payload.tobytes() == VECTOR.tobytes()
    assert examples == 11
    assert len(frame) == HEADER_BYTES + 4 * 3


def test_the_header_says_where_and_what() -> None:
    header = read_header(replace(CHANNEL, number=2).pack(VECTOR, HERE, examples=11))
    assert (header.direction, header.part, header.codec) == (Direction.UP, 2, make_codec("dense").number)
    assert (header.template, header.round_number, header.client) == (b"template", 7, 5)
    assert (header.examples, header.size) == (11, 3)
    broadcast = read_header(CHANNEL.pack(VECTOR, down(7)))
    assert (broadcast.direction, broadcast.round_number, broadcast.client) == (Direction.DOWN, 7, EVERYONE)


def test_a_payload_that_is_encoded_already_gives_the_same_frame() -> None:
    encoded = CHANNEL.part.codec.encode(VECTOR, Shared(3))
    assert CHANNEL.frame(encoded, HERE, 11) == CHANNEL.pack(VECTOR, HERE, examples=11)


def test_both_sides_use_what_they_share() -> None:
    """The rotation of eden is drawn from the key: with another one the vector comes out as another."""
    channel = Channel(Part("weights", make_codec("eden", bits=4), 64), b"template")
    vector, key = np.linspace(-1, 1, 64).astype(np.float32), Shared(64, key=9)
    frame = channel.pack(vector, HERE, key)
    same, other = channel.unpack(frame, HERE, key)[0], channel.unpack(frame, HERE, Shared(64, key=10))[0]
    assert np.abs(same - vector).max() < 0.5 < np.abs(other - vector).max()


def of(channel: Channel) -> bytes:
    return channel.pack(VECTOR, HERE)


OTHERS: dict[str, Callable[[], bytes]] = {
    "direction": lambda: CHANNEL.pack(VECTOR, replace(HERE, direction=Direction.DOWN)),
    "part": lambda: of(replace(CHANNEL, number=1)),
    "codec": lambda: of(replace(CHANNEL, part=replace(CHANNEL.part, codec=make_codec("int8")))),
    "template": lambda: of(replace(CHANNEL, template=b"TEMPLATE")),
    "round": lambda: CHANNEL.pack(VECTOR, up(8, 5)),
    "client": lambda: CHANNEL.pack(VECTOR, up(7, 6)),
    "size": lambda: Channel(replace(CHANNEL.part, size=2), b"template").pack(VECTOR[:2], HERE),
    "examples": lambda: CHANNEL.pack(VECTOR, HERE, examples=13),
    "checksum": lambda: of(CHANNEL)[:-1] + b"\xff",
    "truncated": lambda: of(CHANNEL)[:-1],
    "length": lambda: of(CHANNEL) + b"\0",
    "not-a-frame": lambda: b"rubbish",
}


@pytest.mark.parametrize("cause", OTHERS)
def test_anything_else_is_refused_by_its_cause(cause: str) -> None:
    with pytest.raises(FrameError) as caught:
        CHANNEL.unpack(OTHERS[cause](), HERE, maximum_examples=12)
    assert caught.value.cause == cause


def test_a_payload_that_its_codec_cannot_read_is_refused() -> None:
    with pytest.raises(PayloadError):
        CHANNEL.unpack(CHANNEL.frame(b"short", HERE), HERE)
