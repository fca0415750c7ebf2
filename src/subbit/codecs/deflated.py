"""Containers for the slots of a filter: raw bytes, a DEFLATE stream, or the pixels of a PNG (as in DeltaMask).

Fingerprints are uniform, so only slots that stayed 0 can be compressed. A Huffman code exploits these fully, and
matching repeated strings does not help. So DEFLATE runs in its Huffman-only mode, which is smaller here and several
times faster than searching for repeats. The PNG is 8-bit grey, near-square, without row filters and with one IDAT: the
same stream plus about 70 bytes and one byte per row.

The reader knows the decompressed length in advance, so no stream can make it allocate more.
"""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np

from subbit.core.errors import ConfigError, PayloadError

CONTAINERS = ("raw", "deflate", "png")
"""The index here is the number on the wire."""
SMALLEST = "smallest"
RAW_STREAM, ZLIB_STREAM = -15, 15
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNK_OVERHEAD = 12


def check_container(container: str) -> None:
    if container not in (*CONTAINERS, SMALLEST):
        raise ConfigError(f"unknown container {container!r}; there are: {', '.join((*CONTAINERS, SMALLEST))}")


def wrap(content: bytes, container: str) -> tuple[int, bytes]:
    """The number of the container and the content in it; `SMALLEST` selects the smallest container."""
    names = CONTAINERS if container == SMALLEST else (container,)
    wrapped = [(CONTAINERS.index(name), _wrap_in(name, content)) for name in names]
    return min(wrapped, key=lambda candidate: len(candidate[1]))


def unwrap(number: int, data: bytes, length: int, container: str) -> bytes:
    """Return the `length` bytes of content. `container` is what the sender was configured with."""
    if number >= len(CONTAINERS) or container not in (CONTAINERS[number], SMALLEST):
        raise PayloadError(f"container number {number} where {container!r} was agreed")
    if CONTAINERS[number] == "deflate":
        return _inflate(data, length, RAW_STREAM)
    if CONTAINERS[number] == "png":
        return _read_png(data, length)
    if len(data) != length:
        raise PayloadError(f"{len(data)} bytes of fingerprints where {length} are needed")
    return data


def _wrap_in(name: str, content: bytes) -> bytes:
    if name == "deflate":
        return _deflate(content, RAW_STREAM)
    return _write_png(content) if name == "png" else content


def _deflate(content: bytes, stream: int) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, stream, 9, zlib.Z_HUFFMAN_ONLY)
    return compressor.compress(content) + compressor.flush()


def _inflate(data: bytes, length: int, stream: int) -> bytes:
    decompressor = zlib.decompressobj(stream)
    try:
        # One byte more than expected, to detect a stream that is too long without decompressing all of it.
        content = decompressor.decompress(data, length + 1)
    except zlib.error as error:
        raise PayloadError(f"not a DEFLATE stream: {error}") from None
    if len(content) != length or not decompressor.eof:
        raise PayloadError(f"a DEFLATE stream that does not end after {length} bytes")
    if decompressor.unused_data:
        raise PayloadError(f"{len(decompressor.unused_data)} bytes after the end of the DEFLATE stream")
    return content


def _png_dimensions(length: int) -> tuple[int, int]:
    width = max(1, math.isqrt(max(0, length - 1)) + 1)
    return width, max(1, -(-length // width))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png_start(width: int, height: int) -> bytes:
    """Signature and IHDR: 8-bit grey, compression and filter method 0, not interlaced."""
    return PNG_SIGNATURE + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def _write_png(content: bytes) -> bytes:
    width, height = _png_dimensions(len(content))
    rows = np.zeros((height, 1 + width), np.uint8)  # Every row starts with its filter type, 0: none.
    pixels = np.zeros(height * width, np.uint8)
    pixels[: len(content)] = np.frombuffer(content, np.uint8)
    rows[:, 1:] = pixels.reshape(height, width)
    return _png_start(width, height) + _chunk(b"IDAT", _deflate(rows.tobytes(), ZLIB_STREAM)) + _chunk(b"IEND", b"")


def _read_png(data: bytes, length: int) -> bytes:
    """Accept only PNGs written by `_write_png`: everything but the stream is known, so it is compared, not parsed."""
    width, height = _png_dimensions(length)
    start, end = _png_start(width, height), _chunk(b"IEND", b"")
    if not data.startswith(start) or not data.endswith(end):
        raise PayloadError(f"not a PNG of {width} x {height} grey pixels")
    image = data[len(start) : len(data) - len(end)]
    stream = image[8:-4]
    if len(image) < CHUNK_OVERHEAD or image != _chunk(b"IDAT", stream):
        raise PayloadError("a PNG without exactly one whole IDAT chunk")
    rows = np.frombuffer(_inflate(stream, height * (1 + width), ZLIB_STREAM), np.uint8).reshape(height, 1 + width)
    pixels = rows[:, 1:].reshape(-1)
    if rows[:, 0].any() or pixels[length:].any():
        raise PayloadError("a PNG with row filters or with pixels after the last fingerprint")
    return pixels[:length].tobytes()
