"""Malformed bytes, and how a decoder handles them."""

from __future__ import annotations

import tracemalloc
import zlib
from functools import cache
from random import Random

from subbit.codecs import Shared
from subbit.conformance.cases import Subject, complaint
from subbit.conformance.laws import LawError, demand
from subbit.core.errors import PayloadError


def decode_hostile(subject: Subject, data: bytes, shared: Shared) -> bool:
    """True if the codec rejected the bytes. Anything but `PayloadError` or a well-formed payload breaks the law."""
    shown = f"{data[:32].hex()}... ({len(data)} bytes)"
    try:
        payload = subject.codec.decode(data, shared)
    except PayloadError:
        return True
    except Exception as error:
        raise LawError(f"{type(error).__name__} on decoding {shown}: {error}; it must raise PayloadError") from error
    wrong = complaint(subject.codec.kind, payload, shared)
    demand(wrong is None, f"{subject.label} decodes {shown} to a bad payload: {wrong}")
    return False


def memory_of(subject: Subject, data: bytes, shared: Shared) -> tuple[bool, int]:
    """Whether the codec rejected the bytes, and its peak memory in bytes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        refused = decode_hostile(subject, data, shared)
        return refused, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def mutations(data: bytes, random: Random, count: int) -> list[bytes]:
    """Copies with bytes overwritten by extreme and random values, near the front (where headers are) and anywhere."""
    found = []
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(random.randint(1, 4)):
            if mutant:
                place = random.randrange(min(len(mutant), 16) if random.random() < 0.5 else len(mutant))
                mutant[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        found.append(bytes(mutant))
    return found


def bombs(data: bytes) -> list[bytes]:
    """The payload with every DEFLATE stream in it replaced by 64 MB of zeros."""
    return [_with_bomb(data, offset, wbits) for offset, wbits in _deflate_streams(data)]


def _deflate_streams(data: bytes) -> list[tuple[int, int]]:
    """(offset, wbits) of every zlib or raw DEFLATE stream that extends to the end, or to the last chunk of a PNG."""
    found = []
    for offset in range(len(data)):
        for wbits in (15, -15):
            stream = zlib.decompressobj(wbits)
            try:
                inflated = stream.decompress(data[offset:], 1 << 20)
            except zlib.error:
                continue
            if stream.eof and len(inflated) > 8 and len(stream.unused_data) <= 16:
                found.append((offset, wbits))
    return found


@cache
def _bomb(wbits: int) -> bytes:
    """64 MB of zeros in 64 kB."""
    deflate = zlib.compressobj(9, wbits=wbits)
    return deflate.compress(bytes(1 << 26)) + deflate.flush()


def _with_bomb(data: bytes, offset: int, wbits: int) -> bytes:
    """In a PNG the bomb is a complete chunk, so that the file opens."""
    bomb = _bomb(wbits)
    if data[offset - 4 : offset] != b"IDAT":
        return data[:offset] + bomb
    checksum = zlib.crc32(b"IDAT" + bomb).to_bytes(4, "big")
    return data[: offset - 8] + len(bomb).to_bytes(4, "big") + b"IDAT" + bomb + checksum + data[-12:]
