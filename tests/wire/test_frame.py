"""Frames: the layout byte by byte, the round trip, and one refusal per cause."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import ConfigError, FrameError
from subbit.wire import EVERYONE, HEADER_BYTES, Address, Direction, Header, pack_frame, read_header, unpack_frame

UPLOAD = Address(Direction.UP, part=1, codec=15, template=b"template", round_number=3, client=7, size=100)
BROADCAST = Address(Direction.DOWN, part=0, codec=20, template=b"template", round_number=3, client=EVERYONE, size=100)

addresses = st.builds(
    Address,
    direction=st.sampled_from(Direction),
    part=st.integers(0, 255),
    codec=st.integers(0, 255),
    template=st.binary(min_size=8, max_size=8),
    round_number=st.integers(0, 2**32 - 1),
    client=st.integers(0, EVERYONE),
    size=st.integers(0, 2**32 - 1),
)


def with_correct_checksum(frame: bytes) -> bytes:
    """The frame as a sender would write it who means what the header says."""
    return frame[:36] + struct.pack("<I", zlib.crc32(frame[:36] + frame[40:])) + frame[40:]


def refusal(data: bytes, expected: Address = UPLOAD, **limits: int) -> str:
    with pytest.raises(FrameError) as caught:
        unpack_frame(data, expected, **limits)
    return caught.value.cause


def test_layout_is_what_the_docstring_says() -> None:
    """Written out by hand, field by field, little-endian: 3 -> 03 00 00 00, 258 = 0x102 -> 02 01 00 00."""
    fields = (
        b"SBIT" + bytes([1, 2, 1, 15]) + b"template"
        b"\x03\x00\x00\x00" + b"\x07\x00\x00\x00" + b"\x02\x01\x00\x00" + b"\x64\x00\x00\x00" + b"\x02\x00\x00\x00"
    )
    checksum = zlib.crc32(fields + b"\xab\xcd").to_bytes(4, "little")
    assert pack_frame(b"\xab\xcd", UPLOAD, examples=258) == fields + checksum + b"\xab\xcd"
    assert HEADER_BYTES == 40


@given(address=addresses, payload=st.binary(max_size=64), examples=st.integers(0, 2**31 - 1))
def test_unpack_undoes_pack(address: Address, payload: bytes, examples: int) -> None:
    if address.direction == Direction.DOWN:
        examples = 0
    frame = pack_frame(payload, address, examples)
    assert len(frame) == HEADER_BYTES + len(payload)
    assert unpack_frame(frame, address) == (payload, examples)
    assert read_header(frame) == Header(
        version=1,
        direction=address.direction,
        part=address.part,
        codec=address.codec,
        template=address.template,
        round_number=address.round_number,
        client=address.client,
        examples=examples,
        size=address.size,
        payload_length=len(payload),
        checksum=zlib.crc32(frame[:36] + payload),
    )


@given(data=st.one_of(st.binary(max_size=100), st.binary(max_size=100).map(lambda tail: b"SBIT\x01" + tail)))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    """A chance hit on a 32-bit checksum does not happen here."""
    assert refusal(data) in {"not-a-frame", "truncated", "version", "length", "checksum"}


def test_every_truncation_and_every_flipped_bit_is_refused() -> None:
    """CRC-32 finds every single-bit error; bits 0..31 hit the magic, 32..39 the version, 256..287 the length."""
    frame = pack_frame(b"payload", UPLOAD, examples=9)
    for length in range(len(frame)):
        assert refusal(frame[:length]) == ("not-a-frame" if length < 4 else "truncated")
    assert refusal(frame + b"\0") == "length"
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit < 32:
            causes = {"not-a-frame"}
        elif bit < 40:
            causes = {"version"}
        elif 256 <= bit < 288:
            causes = {"truncated", "length"}
        else:
            causes = {"checksum"}
        assert refusal(bytes(damaged)) in causes


@pytest.mark.parametrize(
    ("cause", "other"),
    [
        ("direction", replace(UPLOAD, direction=Direction.DOWN)),
        ("part", replace(UPLOAD, part=0)),
        ("codec", replace(UPLOAD, codec=16)),
        ("template", replace(UPLOAD, template=b"TEMPLATE")),
        ("round", replace(UPLOAD, round_number=2)),
        ("client", replace(UPLOAD, client=8)),
        ("size", replace(UPLOAD, size=101)),
    ],
)
def test_a_frame_for_another_address_is_refused_by_its_field(cause: str, other: Address) -> None:
    assert refusal(pack_frame(b"payload", other)) == cause


def test_the_message_says_what_was_found_and_what_was_expected() -> None:
    with pytest.raises(FrameError, match="frame has round 3, expected 4"):
        unpack_frame(pack_frame(b"", UPLOAD), replace(UPLOAD, round_number=4))


def test_another_version_is_named_even_where_its_header_is_shorter() -> None:
    assert refusal(b"SBIT\x02 and whatever version 2 may hold") == "version"


def test_a_direction_that_does_not_exist_is_refused_without_expectations() -> None:
    frame = bytearray(pack_frame(b"payload", UPLOAD))
    frame[5] = 3
    with pytest.raises(FrameError) as caught:
        read_header(with_correct_checksum(bytes(frame)))
    assert caught.value.cause == "direction"


def test_payload_is_bounded_by_the_expected_size() -> None:
    """Default bound: 1024 + 8 * 100 = 1824 bytes."""
    assert unpack_frame(pack_frame(bytes(1824), UPLOAD), UPLOAD) == (bytes(1824), 0)
    assert refusal(pack_frame(bytes(1825), UPLOAD)) == "length"
    assert refusal(pack_frame(bytes(11), UPLOAD), maximum_payload=10) == "length"


def test_examples_are_bounded_and_belong_to_uploads() -> None:
    frame = pack_frame(b"", UPLOAD, examples=1000)
    assert unpack_frame(frame, UPLOAD, maximum_examples=1000) == (b"", 1000)
    assert refusal(frame, maximum_examples=999) == "examples"
    with pytest.raises(ConfigError, match="examples"):
        pack_frame(b"", BROADCAST, examples=1)
    lying = bytearray(pack_frame(b"", BROADCAST))
    lying[24] = 1
    assert refusal(with_correct_checksum(bytes(lying)), BROADCAST) == "examples"


@pytest.mark.parametrize(
    "wrong",
    [
        {"direction": 3},
        {"part": 256},
        {"part": -1},
        {"codec": 256},
        {"template": b"short"},
        {"round_number": -1},
        {"round_number": 2**32},
        {"client": 2**32},
        {"size": -1},
        {"size": 2**32},
    ],
)
def test_an_address_that_fits_no_header_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(UPLOAD, **wrong)  # type: ignore[arg-type]


def test_too_many_examples_are_refused_on_packing() -> None:
    with pytest.raises(ConfigError):
        pack_frame(b"", UPLOAD, examples=2**31)
