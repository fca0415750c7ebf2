"""Make damaged frames from valid ones: edits of payload and header, mostly followed by a repair of the checksum.

Without the repair nine inputs in ten would fail at the checksum and never reach the decoders.
"""

from __future__ import annotations

import struct
import zlib
from random import Random

from subbit.wire import HEADER_BYTES

LENGTH_AT = 32
EXTREMES = (0, 1, 2, *((1 << bits) - offset for bits in (7, 8, 15, 16, 31, 32, 63, 64) for offset in (0, 1)))
LONGEST = 4096


def mutate(frame: bytes, other: bytes, random: Random) -> bytes:
    """One to four edits of the payload, rarely one of the header, then usually the repair. `other` supplies bytes."""
    header, payload = bytearray(frame[:HEADER_BYTES]), bytearray(frame[HEADER_BYTES:])
    for _ in range(random.choice((1, 1, 2, 4))):
        payload = random.choice(EDITS)(payload, other[HEADER_BYTES:], random)[:LONGEST]
    if random.random() < 0.05:
        header[random.randrange(HEADER_BYTES)] ^= 1 << random.randrange(8)
    if random.random() < 0.95:
        return repair(bytes(header), bytes(payload))
    return bytes(header + payload)[: random.choice((None, random.randrange(HEADER_BYTES + len(payload) + 1)))]


def repair(header: bytes, payload: bytes) -> bytes:
    """The frame with the correct length and checksum for this payload."""
    fields = header[:LENGTH_AT] + struct.pack("<I", len(payload))
    return fields + struct.pack("<I", zlib.crc32(payload, zlib.crc32(fields))) + payload


def flip_bit(payload: bytearray, other: bytes, random: Random) -> bytearray:
    if payload:
        payload[front_heavy(len(payload), random)] ^= 1 << random.randrange(8)
    return payload


def overwrite_byte(payload: bytearray, other: bytes, random: Random) -> bytearray:
    if payload:
        payload[front_heavy(len(payload), random)] = random.randrange(256)
    return payload


def overwrite_integer(payload: bytearray, other: bytes, random: Random) -> bytearray:
    """Write an extreme number, or one next to the existing number, in 1, 2, 4 or 8 bytes."""
    width = random.choice((1, 2, 4, 8))
    if len(payload) >= width:
        place = front_heavy(len(payload) - width + 1, random)
        there = int.from_bytes(payload[place : place + width], "little")
        number = random.choice((random.choice(EXTREMES), there + 1, there - 1, there * 2)) % (1 << 8 * width)
        payload[place : place + width] = number.to_bytes(width, random.choice(("little", "little", "big")))
    return payload


def truncate(payload: bytearray, other: bytes, random: Random) -> bytearray:
    return payload[: random.randrange(len(payload) + 1)]


def extend(payload: bytearray, other: bytes, random: Random) -> bytearray:
    return payload + random.choice((bytes(1), b"\xff", random.randbytes(random.randrange(1, 33)), other[-16:]))


def remove(payload: bytearray, other: bytes, random: Random) -> bytearray:
    start = random.randrange(len(payload) + 1)
    return payload[:start] + payload[start + random.randrange(1, 9) :]


def repeat(payload: bytearray, other: bytes, random: Random) -> bytearray:
    start = random.randrange(len(payload) + 1)
    return payload[: start + random.randrange(1, 17)] + payload[start:]


def splice(payload: bytearray, other: bytes, random: Random) -> bytearray:
    """Start of one payload, end of another."""
    return payload[: random.randrange(len(payload) + 1)] + other[random.randrange(len(other) + 1) :]


def fill(payload: bytearray, other: bytes, random: Random) -> bytearray:
    start = random.randrange(len(payload) + 1)
    length = min(random.randrange(1, 65), len(payload) - start)
    payload[start : start + length] = random.choice((bytes(length), b"\xff" * length, random.randbytes(length)))
    return payload


def front_heavy(length: int, random: Random) -> int:
    """A random position, half of the time among the first 16, where codecs keep their headers."""
    return random.randrange(min(length, 16) if random.random() < 0.5 else length)


EDITS = (flip_bit, overwrite_byte, overwrite_integer, truncate, extend, remove, repeat, splice, fill)
