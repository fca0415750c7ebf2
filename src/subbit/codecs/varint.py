"""Unsigned integers as 7-bit groups, least significant first (LEB128), with exactly one encoding for each number."""

from __future__ import annotations

from subbit.core.errors import PayloadError


def write_varint(value: int) -> bytes:
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_varint(data: bytes, offset: int, largest: int, what: str) -> tuple[int, int]:
    """Return the number at `offset` and the offset after it. `what` names the number in error messages."""
    value, shift = 0, 0
    while True:
        if offset >= len(data):
            raise PayloadError(f"payload ends inside the {what}", "truncated")
        group = data[offset]
        offset += 1
        value |= (group & 0x7F) << shift
        if value > largest:
            raise PayloadError(f"{what} is at least {value}, at most {largest} is possible here", "value")
        if group < 0x80:
            if group == 0 and shift:
                raise PayloadError(f"{what} is written with more bytes than it needs")
            return value, offset
        shift += 7
        if shift > 63:
            raise PayloadError(f"{what} is written with more bytes than it needs")
