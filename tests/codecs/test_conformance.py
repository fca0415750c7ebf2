"""The laws that every registered codec keeps, whoever wrote it: one `@register_codec` line and this suite runs over it.

Hostile bytes may decode to something (no codec authenticates its sender), but then to something well-formed; otherwise
`PayloadError`, never another exception, never more memory than the expected size accounts for.
"""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from cases import DRAWS, Subject, address_for, complaint, payload_bytes, payloads, shared_for, subjects

from subbit.codecs import Counts, Kind, Shared
from subbit.errors import ConfigError, FrameError, PayloadError, SubbitError
from subbit.wire import HEADER_BYTES, pack_frame, unpack_frame

SIZES = (0, 1, 2, 7, 8, 9, 255, 256, 1000)
MEMORY_PER_PLACE = 200
MEMORY_ALWAYS = 1 << 20

every_codec = pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.label) for subject in subjects()])
pytestmark = pytest.mark.timeout(120)  # A decoder that hangs on hostile bytes is a failure too.


def encoded(subject: Subject, size: int, name: str = "typical") -> tuple[bytes, Any, Shared]:
    shared = shared_for(subject.codec.kind, size)
    payload = payloads(subject.codec.kind, shared)[name]
    return subject.codec.encode(payload, shared), payload, shared


def decode_hostile(subject: Subject, data: bytes, shared: Shared) -> bool:
    """True where the codec refused. Anything but `PayloadError` or a well-formed payload fails the test."""
    try:
        payload = subject.codec.decode(data, shared)
    except PayloadError:
        return True
    wrong = complaint(subject.codec.kind, payload, shared)
    assert wrong is None, f"{subject.label} decoded {data[:32].hex()}... ({len(data)} bytes) to a bad payload: {wrong}"
    return False


def mutations(data: bytes, random: Random, count: int) -> list[bytes]:
    """Bytes overwritten by extreme and by random values, near the front (where the headers are) and anywhere."""
    found = []
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(random.randint(1, 4)):
            if mutant:
                place = random.randrange(min(len(mutant), 16) if random.random() < 0.5 else len(mutant))
                mutant[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        found.append(bytes(mutant))
    return found


def check_roundtrip(subject: Subject, payload: Any, shared: Shared) -> None:
    codec, before = subject.codec, payload_bytes(payload)
    data = codec.encode(payload, shared)
    assert isinstance(data, bytes)
    assert codec.encode(payload, shared) == data, "encoding twice gives other bytes"
    decoded = codec.decode(data, shared)
    assert complaint(codec.kind, decoded, shared) is None
    assert payload_bytes(codec.decode(data, shared)) == payload_bytes(decoded), "decoding twice gives another payload"
    assert payload_bytes(payload) == before, "encoding changed its argument"
    if codec.exact:
        assert payload_bytes(decoded) == before
    elif codec.kind is Kind.BITS and codec.name not in DRAWS:
        assert not (payload & ~decoded).any(), "a one was lost"


@every_codec
@pytest.mark.parametrize("size", SIZES)
def test_roundtrip_and_determinism(subject: Subject, size: int) -> None:
    shared = shared_for(subject.codec.kind, size)
    for name, payload in payloads(subject.codec.kind, shared).items():
        try:
            check_roundtrip(subject, payload, shared)
        except PayloadError:
            if name != "huge":  # 16-bit floats end earlier.
                raise


@every_codec
@pytest.mark.parametrize("size", [0, 1, 255])
def test_roundtrip_with_nothing_shared_but_the_size(subject: Subject, size: int) -> None:
    """A codec that cannot work without a prior or a reference says so on both sides, as a `ConfigError`."""
    rich, poor = shared_for(subject.codec.kind, size), Shared(size)
    for name, payload in payloads(subject.codec.kind, rich).items():
        if name == "huge":
            continue
        try:
            check_roundtrip(subject, payload, poor)
        except ConfigError:
            with pytest.raises(ConfigError):
                subject.codec.decode(subject.codec.encode(payload, rich), poor)


@every_codec
def test_frame_is_bounded_by_the_default_limit(subject: Subject) -> None:
    """What a codec writes passes `unpack_frame` without a limit of its own, at every size."""
    for size in SIZES:
        shared = shared_for(subject.codec.kind, size)
        for name, payload in payloads(subject.codec.kind, shared).items():
            if name != "huge":
                data = subject.codec.encode(payload, shared)
                address = address_for(subject.codec, size)
                assert unpack_frame(pack_frame(data, address), address) == (data, 0)


@every_codec
@pytest.mark.parametrize("size", [1, 60])
def test_every_truncation(subject: Subject, size: int) -> None:
    data, _, shared = encoded(subject, size)
    for length in range(len(data)):
        decode_hostile(subject, data[:length], shared)


@every_codec
@pytest.mark.parametrize("size", SIZES)
def test_extension_is_refused(subject: Subject, size: int) -> None:
    """Or is what the codec writes for some other payload: the stream of a range coder needs no length."""
    for name in payloads(subject.codec.kind, shared_for(subject.codec.kind, size)):
        if name == "huge":
            continue
        data, _, shared = encoded(subject, size, name)
        for tail in (b"\0", b"\xff", bytes(9), b"\x80" * 64):
            try:
                other = subject.codec.decode(data + tail, shared)
            except PayloadError:
                continue
            assert subject.codec.encode(other, shared) == data + tail, name


@every_codec
def test_flipped_bits(subject: Subject) -> None:
    data, _, shared = encoded(subject, 60)
    bits = range(8 * len(data))
    for bit in bits if len(bits) <= 1500 else Random(0).sample(bits, 1500):
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        decode_hostile(subject, bytes(mutant), shared)


@every_codec
@pytest.mark.parametrize("size", [0, 1, 9, 300])
def test_random_and_mutated_bytes(subject: Subject, size: int) -> None:
    random = Random(size)
    data, _, shared = encoded(subject, size)
    for _ in range(100):
        decode_hostile(subject, random.randbytes(random.randrange(64)), shared)
        decode_hostile(subject, random.randbytes(len(data)), shared)
    for mutant in mutations(data, random, 200):
        decode_hostile(subject, mutant, shared)


@every_codec
@pytest.mark.parametrize("other", [0, 1, 8, 59, 61, 500])
def test_bytes_of_another_size(subject: Subject, other: int) -> None:
    """A sender that lies about its size in a way that its frame does not show."""
    data, _, _ = encoded(subject, other)
    decode_hostile(subject, data, shared_for(subject.codec.kind, 60))


@every_codec
def test_memory_is_bounded_by_the_expected_size(subject: Subject) -> None:
    """numpy reports its arrays to tracemalloc. What compiled code allocates is watched by the fuzzer."""
    data, _, shared = encoded(subject, 1000)
    hostile = [*mutations(data, Random(1), 60), *(b"\xff" * length for length in (4, 8, 16, 64, 1000)), bytes(8000)]
    decode_hostile(subject, data, shared)  # Compiles outside of the measurement.
    limit = MEMORY_PER_PLACE * shared.size + MEMORY_ALWAYS
    tracemalloc.start()
    try:
        for mutant in hostile:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            decode_hostile(subject, mutant, shared)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < limit, f"{subject.label} took {peak - before} bytes to decode {mutant[:32].hex()}..."
    finally:
        tracemalloc.stop()


def deflate_streams(data: bytes) -> list[tuple[int, int]]:
    """(offset, wbits) wherever a zlib or raw DEFLATE stream reaches to the end, or to the last chunk of a PNG."""
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
def bomb(wbits: int) -> bytes:
    """64 MB of zeros in 64 kB."""
    deflate = zlib.compressobj(9, wbits=wbits)
    return deflate.compress(bytes(1 << 26)) + deflate.flush()


def with_bomb(data: bytes, offset: int, wbits: int) -> bytes:
    """The payload with a bomb in place of the stream at that offset; in a PNG as a whole chunk, so that it opens."""
    if data[offset - 4 : offset] != b"IDAT":
        return data[:offset] + bomb(wbits)
    checksum = zlib.crc32(b"IDAT" + bomb(wbits)).to_bytes(4, "big")
    return data[: offset - 8] + len(bomb(wbits)).to_bytes(4, "big") + b"IDAT" + bomb(wbits) + checksum + data[-12:]


@every_codec
def test_decompression_bombs(subject: Subject) -> None:
    """In place of every DEFLATE stream that the payload holds: no more memory than for any other hostile bytes."""
    data, _, shared = encoded(subject, 300)
    hostile = [with_bomb(data, offset, wbits) for offset, wbits in deflate_streams(data)]
    for mutant in hostile:
        tracemalloc.start()
        try:
            assert decode_hostile(subject, mutant, shared)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The codec may slice the bytes that it was given.
        assert peak < MEMORY_PER_PLACE * shared.size + MEMORY_ALWAYS + len(mutant)


@every_codec
def test_frames_of_another_place_are_refused(subject: Subject) -> None:
    data, _, _ = encoded(subject, 60)
    address = address_for(subject.codec, 60)
    frame = pack_frame(data, address)
    assert unpack_frame(frame, address) == (data, 0)
    for cause, expected in {
        "template": replace(address, template=b"TEMPLATE"),
        "codec": replace(address, codec=address.codec ^ 1),
        "round": replace(address, round_number=4),
        "client": replace(address, client=8),
        "size": replace(address, size=61),
        "part": replace(address, part=1),
    }.items():
        with pytest.raises(FrameError) as caught:
            unpack_frame(frame, expected)
        assert caught.value.cause == cause
    with pytest.raises(FrameError) as caught:
        unpack_frame(frame[:4] + b"\x02" + frame[5:], address)
    assert caught.value.cause == "version"
    for bit in Random(2).sample(range(8 * HEADER_BYTES, 8 * len(frame)), min(50, 8 * len(data))):
        mutant = bytearray(frame)
        mutant[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError) as caught:
            unpack_frame(bytes(mutant), address)
        assert caught.value.cause == "checksum"


@every_codec
def test_payloads_of_the_wrong_form_are_not_encoded(subject: Subject) -> None:
    kind = subject.codec.kind
    shared = shared_for(kind, 60)
    wrong: list[Any]
    if kind is Kind.BITS:
        wrong = [np.zeros(7, np.uint8), np.zeros(8, np.int64), np.full(8, 255, np.uint8)]
    elif kind is Kind.COUNTS:
        values = np.zeros(60, np.uint16)
        wrong = [Counts(3, values[:59]), Counts(3, values + np.uint16(4)), Counts(shared.limit + 1, values)]
    else:
        wrong = [np.zeros(59, np.float32), np.zeros(60, np.float64), np.full(60, np.nan, np.float32)]
        wrong.append(np.where(np.arange(60) == 5, np.inf, 0).astype(np.float32))
    for payload in wrong:
        with pytest.raises(SubbitError):
            subject.codec.encode(payload, shared)
