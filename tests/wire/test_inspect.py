"""`describe_frame` says what a frame is and never decodes it."""

from __future__ import annotations

import pytest

from subbit.codecs import registered_codecs
from subbit.core.errors import FrameError
from subbit.wire import EVERYONE, Address, Direction, pack_frame
from subbit.wire.inspect import describe_frame


def lines(data: bytes) -> dict[str, str]:
    return {line[:14].strip(): line[14:].strip() for line in describe_frame(data).splitlines()}


def test_a_frame_in_words() -> None:
    """24 bytes of payload, 64 with the header, on 256 places: 8 * 64 / 256 = 2 bits and 8 * 24 / 256 = 0.75."""
    codec = next(registered_codecs())
    address = Address(Direction.UP, 1, codec.number, b"template", round_number=3, client=7, size=256)
    words = lines(pack_frame(b"not what any codec wrote", address, examples=12))
    assert words["frame"] == "version 1, 40 bytes of header + 24 of payload"
    assert words["codec"] == f"{codec.name} ({codec.number})"
    assert words["payload"].startswith(codec.kind.value)
    assert words["bits per place"] == "2.0000 with the header, 0.7500 without"
    assert words["direction"] == "up, client to server"
    assert (words["round"], words["client"], words["part"], words["examples"]) == ("3", "7", "1", "12")
    assert words["template"] == b"template".hex()
    assert words["checksum"].endswith("correct")


def test_an_unknown_codec_and_no_places_are_described_too() -> None:
    words = lines(pack_frame(b"", Address(Direction.DOWN, 0, 255, b"template", 0, EVERYONE, 0)))
    assert words["codec"] == "255, unknown to this version"
    assert words["client"] == "everyone"
    assert words["bits per place"] == "none, there are no places"


@pytest.mark.parametrize("data", [b"", b"SBIT", b"PK\x03\x04", b"SBIT\x01" + bytes(35)])
def test_what_is_not_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        describe_frame(data)
