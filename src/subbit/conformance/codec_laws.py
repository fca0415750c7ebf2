"""Laws of codecs.

Malformed bytes may decode to something (codecs do not authenticate the sender), but then it must be well-formed.
Otherwise they must raise `PayloadError`, never another exception, and never use more memory than the expected size
justifies.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from subbit.codecs import Counts, Kind, Shared
from subbit.conformance.cases import DRAWS, Subject, address_for, complaint, payload_bytes, payloads, shared_for
from subbit.conformance.hostile import bombs, decode_hostile, memory_of, mutations
from subbit.conformance.laws import LawError, Laws, demand
from subbit.core.errors import ConfigError, FrameError, PayloadError, SubbitError
from subbit.wire import HEADER_BYTES, pack_frame, unpack_frame

law = Laws()
SIZES = (0, 1, 2, 7, 8, 9, 255, 256, 1000)
MEMORY_PER_PLACE = 200
MEMORY_ALWAYS = 1 << 20
HUGE = "huge"
"""A payload that some codecs reject, because 16-bit floats overflow."""


def encoded(subject: Subject, size: int, name: str = "typical") -> tuple[bytes, Any, Shared]:
    shared = shared_for(subject.codec.kind, size)
    payload = payloads(subject.codec.kind, shared)[name]
    return subject.codec.encode(payload, shared), payload, shared


def check_roundtrip(subject: Subject, payload: Any, shared: Shared) -> None:
    codec, before = subject.codec, payload_bytes(payload)
    data = codec.encode(payload, shared)
    demand(isinstance(data, bytes), f"encode returns {type(data).__name__}, needs bytes")
    demand(codec.encode(payload, shared) == data, "encoding twice gives other bytes")
    promised = codec.fixed_length(shared.size)
    demand(promised in (None, len(data)), f"fixed_length says {promised} bytes, encode gives {len(data)}")
    decoded = codec.decode(data, shared)
    wrong = complaint(codec.kind, decoded, shared)
    demand(wrong is None, f"decodes to a bad payload: {wrong}")
    again = payload_bytes(codec.decode(data, shared))
    demand(again == payload_bytes(decoded), "decoding twice gives another payload")
    demand(payload_bytes(payload) == before, "encoding changed its argument")
    if codec.exact:
        demand(payload_bytes(decoded) == before, "it says that it is exact, and another payload arrives")
    elif codec.kind is Kind.BITS and codec.name not in DRAWS:
        demand(not (payload & ~decoded).any(), "a one was lost")


@law("what arrives is what was sent, as far as the codec promises, and always the same")
def roundtrip(subject: Subject) -> None:
    for size in SIZES:
        shared = shared_for(subject.codec.kind, size)
        for name, payload in payloads(subject.codec.kind, shared).items():
            try:
                check_roundtrip(subject, payload, shared)
            except PayloadError as error:
                demand(name == HUGE, f"{size} places, {name}: {error}")
            except LawError as error:
                raise LawError(f"{size} places, {name}: {error}") from None


@law("with nothing shared but the size it works, or says on both sides that it needs more")
def poor_roundtrip(subject: Subject) -> None:
    for size in (0, 1, 255):
        rich, poor = shared_for(subject.codec.kind, size), Shared(size)
        for name, payload in payloads(subject.codec.kind, rich).items():
            if name == HUGE:
                continue
            try:
                check_roundtrip(subject, payload, poor)
            except ConfigError:
                try:
                    subject.codec.decode(subject.codec.encode(payload, rich), poor)
                except ConfigError:
                    continue
                raise LawError("the sender needs a prior or a reference, the receiver does without") from None


@law("no frame is longer than a receiver accepts")
def bounded_frames(subject: Subject) -> None:
    for size in SIZES:
        shared, address = shared_for(subject.codec.kind, size), address_for(subject.codec, size)
        for name, payload in payloads(subject.codec.kind, shared).items():
            if name != HUGE:
                data = subject.codec.encode(payload, shared)
                demand(unpack_frame(pack_frame(data, address), address) == (data, 0), f"{size} places, {name}")


@law("bytes that are cut off or flipped are refused, or decode to something well-formed")
def damaged_bytes(subject: Subject) -> None:
    for size in (1, 60):
        data, _, shared = encoded(subject, size)
        for length in range(len(data)):
            decode_hostile(subject, data[:length], shared)
    bits = range(8 * len(data))
    for bit in bits if len(bits) <= 1500 else Random(0).sample(bits, 1500):
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        decode_hostile(subject, bytes(mutant), shared)


@law("bytes behind the end are refused, or are what it writes for another payload")
def extended_bytes(subject: Subject) -> None:
    for size in SIZES:
        for name in payloads(subject.codec.kind, shared_for(subject.codec.kind, size)):
            if name == HUGE:
                continue
            data, _, shared = encoded(subject, size, name)
            for tail in (b"\0", b"\xff", bytes(9), b"\x80" * 64):
                try:
                    other = subject.codec.decode(data + tail, shared)
                except PayloadError:
                    continue
                same = subject.codec.encode(other, shared) == data + tail
                demand(same, f"{size} places, {name}: accepts {len(tail)} bytes too many")


@law("random bytes, and those of another size, are refused or decode to something well-formed")
def random_bytes(subject: Subject) -> None:
    for size in (0, 1, 9, 300):
        random = Random(size)
        data, _, shared = encoded(subject, size)
        for _ in range(100):
            decode_hostile(subject, random.randbytes(random.randrange(64)), shared)
            decode_hostile(subject, random.randbytes(len(data)), shared)
        for mutant in mutations(data, random, 200):
            decode_hostile(subject, mutant, shared)
    for other in (0, 1, 8, 59, 61, 500):
        decode_hostile(subject, encoded(subject, other)[0], shared_for(subject.codec.kind, 60))


@law("a decoder takes memory by the size that it expects, not by what it reads")
def bounded_memory(subject: Subject) -> None:
    """numpy reports its arrays to tracemalloc. The fuzzer covers allocations of compiled code."""
    data, _, shared = encoded(subject, 1000)
    hostile = [*mutations(data, Random(1), 60), *(b"\xff" * length for length in (4, 8, 16, 64, 1000)), bytes(8000)]
    decode_hostile(subject, data, shared)  # Compiles before the measurement.
    limit = MEMORY_PER_PLACE * shared.size + MEMORY_ALWAYS
    for mutant in hostile:
        _, taken = memory_of(subject, mutant, shared)
        demand(taken < limit, f"took {taken} bytes to decode {mutant[:32].hex()}...")
    data, _, shared = encoded(subject, 300)
    for mutant in bombs(data):
        refused, taken = memory_of(subject, mutant, shared)
        demand(refused, "a stream that decompresses to 64 MB is accepted")
        # The codec may slice its input.
        demand(taken < MEMORY_PER_PLACE * shared.size + MEMORY_ALWAYS + len(mutant), f"took {taken} bytes for a bomb")


@law("frames of another place in the run are refused")
def foreign_frames(subject: Subject) -> None:
    data, _, _ = encoded(subject, 60)
    address = address_for(subject.codec, 60)
    frame = pack_frame(data, address)
    demand(unpack_frame(frame, address) == (data, 0), "its own frame is not accepted")
    for cause, expected in {
        "template": replace(address, template=b"TEMPLATE"),
        "codec": replace(address, codec=address.codec ^ 1),
        "round": replace(address, round_number=4),
        "client": replace(address, client=8),
        "size": replace(address, size=61),
        "part": replace(address, part=1),
    }.items():
        _refused(frame, expected, cause)
    _refused(frame[:4] + b"\x02" + frame[5:], address, "version")
    for bit in Random(2).sample(range(8 * HEADER_BYTES, 8 * len(frame)), min(50, 8 * len(data))):
        mutant = bytearray(frame)
        mutant[bit // 8] ^= 1 << bit % 8
        _refused(bytes(mutant), address, "checksum")


def _refused(frame: bytes, expected: Any, cause: str) -> None:
    try:
        unpack_frame(frame, expected)
    except FrameError as error:
        demand(error.cause == cause, f"refused for its {error.cause}, not for its {cause}")
    else:
        raise LawError(f"a frame of another {cause} is accepted")


@law("payloads of the wrong form are not encoded")
def wrong_payloads(subject: Subject) -> None:
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
        try:
            subject.codec.encode(payload, shared)
        except SubbitError:
            continue
        raise LawError(f"encodes {payload!r:.60}, which is no payload of {shared.size} places")
