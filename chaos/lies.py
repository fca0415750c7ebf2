"""What a malicious client may send: changed payloads that are encoded again, or changed frames."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from subbit.wire.frame import Address, Direction, pack_frame, read_header

HEADER = 40
Lie = Callable[[Any, Random], Any]


def _floats(value: float) -> Lie:
    def lie(payload: Any, random: Random) -> Any:
        return np.full_like(payload, value) if payload.dtype.kind == "f" else np.full_like(payload, 255)

    return lie


def _one(value: float) -> Lie:
    def lie(payload: Any, random: Random) -> Any:
        changed = payload.copy()
        changed[random.randrange(len(changed))] = value if payload.dtype.kind == "f" else 255
        return changed

    return lie


def _scaled(by: float) -> Lie:
    def lie(payload: Any, random: Random) -> Any:
        return payload * np.asarray(by, payload.dtype) if payload.dtype.kind == "f" else ~payload

    return lie


def _random(payload: Any, random: Random) -> Any:
    generator = np.random.default_rng(random.getrandbits(32))
    if payload.dtype.kind == "f":
        return generator.normal(size=payload.shape, scale=10.0 ** random.randint(-3, 30)).astype(payload.dtype)
    return generator.integers(0, np.iinfo(payload.dtype).max, payload.shape, payload.dtype, endpoint=True)


PAYLOADS: dict[str, Lie] = {
    "huge": _floats(3.4e38),
    "large": _floats(1e18),
    "tiny": _floats(1e-40),
    "nan": _floats(np.nan),
    "infinite": _floats(-np.inf),
    "nothing": lambda payload, random: np.zeros_like(payload),
    "ones": lambda payload, random: np.ones_like(payload) if payload.dtype.kind == "f" else np.full_like(payload, 255),
    "one huge": _one(-3.4e38),
    "one nan": _one(np.nan),
    "inverted": _scaled(-1.0),
    "scaled": _scaled(1000.0),
    "blown up": _scaled(-1e30),
    "random": _random,
}


def forged(frame: bytes, payload: bytes, examples: int | None = None) -> bytes:
    """Another payload with a matching header."""
    header = read_header(frame)
    where = Address(
        Direction.UP, header.part, header.codec, header.template, header.round_number, header.client, header.size
    )
    return pack_frame(payload, where, header.examples if examples is None else examples)


Frames = tuple[bytes, ...]
FrameLie = Callable[[Frames, Frames, Frames, Random], Frames]
"""Arguments: own frames, those of another client, own frames of an earlier round."""


def _each(change: Callable[[bytes, Random], bytes]) -> FrameLie:
    def lie(own: Frames, other: Frames, earlier: Frames, random: Random) -> Frames:
        return tuple(change(frame, random) if frame else frame for frame in own)

    return lie


def _bit(frame: bytes, random: Random) -> bytes:
    payload = bytearray(frame[HEADER:] or b"\0")
    payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
    return forged(frame, bytes(payload))


FRAMES: dict[str, FrameLie] = {
    "rubbish": _each(lambda frame, random: random.randbytes(random.randint(0, 2 * len(frame)))),
    "rubbish in a good frame": _each(lambda frame, random: forged(frame, random.randbytes(len(frame) - HEADER))),
    "a bit": _each(_bit),
    "cut": _each(lambda frame, random: frame[: random.randrange(len(frame))]),
    "cut payload": _each(lambda frame, random: forged(frame, frame[HEADER : random.randint(HEADER, len(frame))])),
    "longer": _each(lambda frame, random: forged(frame, frame[HEADER:] + random.randbytes(9))),
    "empty payload": _each(lambda frame, random: forged(frame, b"")),
    "empty frames": _each(lambda frame, random: b""),
    "too many examples": _each(lambda frame, random: forged(frame, frame[HEADER:], 2**31 - 1)),
    "no examples": _each(lambda frame, random: forged(frame, frame[HEADER:], 0)),
    "another client": lambda own, other, earlier, random: other,
    "an earlier round": lambda own, other, earlier, random: earlier,
    "none": lambda own, other, earlier, random: (),
    "double": lambda own, other, earlier, random: own + own,
    "reversed": lambda own, other, earlier, random: own[::-1],
}
