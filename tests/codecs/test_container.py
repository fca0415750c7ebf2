"""Raw, DEFLATE and PNG: what Pillow sees, and streams that claim to be what they are not."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from subbit.codecs.deflated import CONTAINERS, check_container, unwrap, wrap
from subbit.core.errors import ConfigError, PayloadError

CONTENT = bytes(range(251)) * 3 + bytes(90)
PNG_HEADER = 33  # Signature 8, IHDR 12 + 13.


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=400), container=st.sampled_from([*CONTAINERS, "smallest"]))
def test_content_survives(content: bytes, container: str) -> None:
    number, wrapped = wrap(content, container)
    assert unwrap(number, wrapped, len(content), container) == content
    if CONTAINERS[number] != "png":  # A PNG of as many pixels is the same PNG if the last ones are 0.
        for wrong in {len(content) + 1, max(0, len(content) - 1)} - {len(content)}:
            with pytest.raises(PayloadError):
                unwrap(number, wrapped, wrong, container)


def test_smallest_is_the_smallest() -> None:
    lengths = [len(wrap(CONTENT, container)[1]) for container in CONTAINERS]
    assert len(wrap(CONTENT, "smallest")[1]) == min(lengths)
    noise = np.random.Generator(np.random.Philox(0)).bytes(1000)
    assert wrap(noise, "smallest") == (CONTAINERS.index("raw"), noise)


def test_pillow_sees_the_fingerprints() -> None:
    """843 bytes: 30 x 30 would be one row too many, since 29 rows of 30 hold 870."""
    _, png = wrap(CONTENT, "png")
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert (image.format, image.mode, image.size) == ("PNG", "L", (30, 29))
        assert np.asarray(image).tobytes() == CONTENT + bytes(27)


@pytest.mark.parametrize("container", CONTAINERS)
def test_truncated_and_extended(container: str) -> None:
    number, wrapped = wrap(CONTENT, container)
    for length in range(len(wrapped)):
        with pytest.raises(PayloadError):
            unwrap(number, wrapped[:length], len(CONTENT), container)
    for tail in (b"\0", b"IEND", wrapped):
        with pytest.raises(PayloadError):
            unwrap(number, wrapped + tail, len(CONTENT), container)


def test_every_flipped_bit_of_a_png_is_seen() -> None:
    number, png = wrap(CONTENT[:100], "png")
    for bit in range(8 * len(png)):
        broken = bytearray(png)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PayloadError):
            unwrap(number, bytes(broken), 100, "png")


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with(data: bytes, rows: bytes) -> bytes:
    """The PNG `data` with another, correctly summed, IDAT."""
    return data[:PNG_HEADER] + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def test_png_with_row_filters_padding_or_two_images() -> None:
    content = bytes(range(1, 13))  # 4 x 3.
    number, png = wrap(content, "png")
    rows = b"".join(b"\0" + content[start : start + 4] for start in (0, 4, 8))
    assert unwrap(number, png_with(png, rows), 12, "png") == content
    assert unwrap(number, png_with(wrap(content[:11], "png")[1], rows[:-1] + b"\0"), 11, "png") == content[:11]
    image = png_chunk(b"IDAT", zlib.compress(rows))
    for bad in (
        png_with(png, b"\1" + rows[1:]),
        png_with(png, rows[:-1]),
        png_with(png, rows + b"\0"),
        png[:PNG_HEADER] + image + image + png_chunk(b"IEND", b""),
        png[:PNG_HEADER] + png_chunk(b"tEXt", b"a") + image + png_chunk(b"IEND", b""),
        png[:PNG_HEADER] + png_chunk(b"IEND", b""),
        png[: PNG_HEADER - 6],
    ):
        with pytest.raises(PayloadError):
            unwrap(number, bad, 12, "png")
    with pytest.raises(PayloadError, match="pixels after"):
        unwrap(number, png_with(png, rows), 11, "png")


@pytest.mark.parametrize("container", ["deflate", "png"])
def test_bombs_are_refused_without_being_inflated(container: str) -> None:
    bomb = bytes(1 << 26)
    if container == "deflate":
        squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = squeezer.compress(bomb) + squeezer.flush()
    else:
        data = png_with(wrap(CONTENT, "png")[1], bomb)
    assert len(data) < 80_000
    del bomb
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError):
            unwrap(CONTAINERS.index(container), data, len(CONTENT), container)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_only_the_container_that_was_agreed() -> None:
    number, wrapped = wrap(CONTENT, "png")
    with pytest.raises(PayloadError, match="'deflate' was agreed"):
        unwrap(number, wrapped, len(CONTENT), "deflate")
    with pytest.raises(PayloadError, match="container number 3"):
        unwrap(3, wrapped, len(CONTENT), "smallest")
    with pytest.raises(ConfigError, match="'zip'"):
        check_container("zip")
