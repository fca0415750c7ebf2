"""One frame: one encoded payload and a header that ties it to its place in the run.

    offset  bytes  field            little-endian, 40 bytes, then the payload
         0      4  magic            b"SBIT"
         4      1  version          1
         5      1  direction        1 down (server to client), 2 up
         6      1  part             index among the parts that the receiver expects in this direction
         7      1  codec            number of the codec, see `subbit list codecs`
         8      8  template         hash of the names, shapes and order of the trained parameters
        16      4  round
        20      4  client           0xFFFFFFFF = everyone
        24      4  examples         number of training examples of an upload, 0 for a broadcast
        28      4  size             number of positions (bits, counts or values)
        32      4  payload length   in bytes
        36      4  checksum         CRC-32 of all other bytes: header without this field, then payload

The receiver knows all of this except `examples` and the payload before the frame arrives: its `Address`. It compares
the header with it and never allocates memory based on a number it has read. The checksum detects accidental damage, not
attacks: the transport (TLS) keeps attackers out, and codecs must survive hostile payloads.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from subbit.core.errors import ConfigError, FrameError

MAGIC = b"SBIT"
VERSION = 1
TEMPLATE_BYTES = 8
EVERYONE = 0xFFFFFFFF
MAXIMUM_EXAMPLES = 2**31 - 1

_FIELDS = struct.Struct("<4s4B8s5I")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
_CHECKSUM_AT = _FIELDS.size
_MAXIMUM_U8 = 0xFF
_MAXIMUM_U32 = 0xFFFFFFFF


class Direction(IntEnum):
    DOWN = 1
    UP = 2


@dataclass(frozen=True)
class Address:
    """What the receiver knows before the frame arrives. The values are checked to fit into a header."""

    direction: Direction
    part: int
    codec: int
    template: bytes
    round_number: int
    client: int
    size: int

    def __post_init__(self) -> None:
        if self.direction not in tuple(Direction):
            raise ConfigError(f"direction of a frame is 1 (down) or 2 (up), not {self.direction}")
        if len(self.template) != TEMPLATE_BYTES:
            raise ConfigError(f"template of a frame has {TEMPLATE_BYTES} bytes, not {len(self.template)}")
        _check_range("part", self.part, _MAXIMUM_U8)
        _check_range("codec", self.codec, _MAXIMUM_U8)
        _check_range("round", self.round_number, _MAXIMUM_U32)
        _check_range("client", self.client, EVERYONE)
        _check_range("size", self.size, _MAXIMUM_U32)


@dataclass(frozen=True)
class Header:
    """The header as received. Do not trust it before comparing it with an `Address`."""

    version: int
    direction: Direction
    part: int
    codec: int
    template: bytes
    round_number: int
    client: int
    examples: int
    size: int
    payload_length: int
    checksum: int


def pack_frame(payload: bytes, address: Address, examples: int = 0) -> bytes:
    """Build the frame that `unpack_frame` reads with the same address."""
    _check_range("examples", examples, 0 if address.direction == Direction.DOWN else MAXIMUM_EXAMPLES)
    _check_range("payload length", len(payload), _MAXIMUM_U32)
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        address.direction,
        address.part,
        address.codec,
        address.template,
        address.round_number,
        address.client,
        examples,
        address.size,
        len(payload),
    )
    return b"".join((fields, _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(fields))), payload))


def unpack_frame(
    data: bytes,
    expected: Address,
    *,
    maximum_examples: int = MAXIMUM_EXAMPLES,
    maximum_payload: int | None = None,
) -> tuple[bytes, int]:
    """Return payload and number of examples of the frame that `expected` describes; `FrameError` for any other bytes.

    `maximum_payload` is in bytes. The default is 1024 + 8 per position, more than any codec needs, so that an absurd
    payload is rejected before a codec sees it.
    """
    header = read_header(data)
    for cause, found, wanted in (
        ("direction", header.direction.name, Direction(expected.direction).name),
        ("part", header.part, expected.part),
        ("codec", header.codec, expected.codec),
        ("template", header.template.hex(), expected.template.hex()),
        ("round", header.round_number, expected.round_number),
        ("client", header.client, expected.client),
        ("size", header.size, expected.size),
    ):
        if found != wanted:
            raise FrameError(cause, f"frame has {cause} {found}, expected {wanted}")
    longest = 1024 + 8 * expected.size if maximum_payload is None else maximum_payload
    if header.payload_length > longest:
        raise FrameError("length", f"payload has {header.payload_length} bytes, expected at most {longest}")
    most = 0 if expected.direction == Direction.DOWN else maximum_examples
    if header.examples > most:
        raise FrameError("examples", f"frame speaks of {header.examples} examples, expected at most {most}")
    return data[HEADER_BYTES:], header.examples


def read_header(data: bytes) -> Header:
    """Parse the header of a complete, undamaged frame without comparing it with an address."""
    if data[: len(MAGIC)] != MAGIC:
        raise FrameError("not-a-frame", f"not a frame: {len(data)} bytes that begin {data[:4]!r}, expected {MAGIC!r}")
    # Check the version before the length: another version may have another header.
    if len(data) > len(MAGIC) and data[len(MAGIC)] != VERSION:
        raise FrameError("version", f"frame has version {data[len(MAGIC)]}, expected {VERSION}")
    if len(data) < HEADER_BYTES:
        raise FrameError("truncated", f"frame has {len(data)} bytes, its header alone needs {HEADER_BYTES}")
    (_, version, direction, part, codec, template, round_number, client, examples, size, payload_length) = (
        _FIELDS.unpack_from(data)
    )
    found_length = len(data) - HEADER_BYTES
    if found_length != payload_length:
        cause = "truncated" if found_length < payload_length else "length"
        raise FrameError(cause, f"payload has {found_length} bytes, its header says {payload_length}")
    (checksum,) = _CHECKSUM.unpack_from(data, _CHECKSUM_AT)
    view = memoryview(data)
    computed = zlib.crc32(view[HEADER_BYTES:], zlib.crc32(view[:_CHECKSUM_AT]))
    if computed != checksum:
        raise FrameError("checksum", f"bytes add up to checksum {computed:08x}, the header says {checksum:08x}")
    if direction not in tuple(Direction):
        raise FrameError("direction", f"frame has direction {direction}, expected 1 (down) or 2 (up)")
    return Header(
        version=version,
        direction=Direction(direction),
        part=part,
        codec=codec,
        template=template,
        round_number=round_number,
        client=client,
        examples=examples,
        size=size,
        payload_length=payload_length,
        checksum=checksum,
    )


def _check_range(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise ConfigError(f"{name} of a frame must lie between 0 and {maximum}, not {value}")
