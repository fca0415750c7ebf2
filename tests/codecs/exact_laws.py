"""What every exact codec of bits must obey; shared by its tests."""

from __future__ import annotations

from math import lgamma, log
from typing import Any

import numpy as np
from hypothesis import strategies as st

from subbit.codecs.codec import Bits, Codec, Shared
from subbit.codecs.packed import check_bits, pack_bits
from subbit.core.errors import PayloadError

DENSITIES = [0, 0.001, 0.02, 0.2, 0.5, 0.9, 0.995, 1]


def draw_booleans(size: int, density: float, seed: int, clustered: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    booleans = generator.random(size) < density
    if clustered:
        booleans[: size // 2] = False
    return booleans


booleans = st.builds(
    draw_booleans, st.integers(0, 2000), st.sampled_from(DENSITIES), st.integers(0, 999), clustered=st.booleans()
)


def bound_bytes(ones: int, size: int) -> float:
    """log2 C(size, ones) in bytes."""
    return (lgamma(size + 1) - lgamma(ones + 1) - lgamma(size - ones + 1)) / log(2) / 8


def check_roundtrip(codec: Codec[Bits], values: np.ndarray, shared: Shared) -> bytes:
    bits = pack_bits(values)
    before = bits.copy()
    data = codec.encode(bits, shared)
    assert isinstance(data, bytes)
    assert np.array_equal(bits, before), "the payload was changed"
    assert np.array_equal(codec.decode(data, shared), bits)
    assert codec.encode(bits, shared) == data
    return data


def check_hostile(codec: Codec[Any], data: bytes, shared: Shared, *, canonical: bool = True) -> None:
    """Every prefix, some extensions, some bit flips: refused, or a payload in form whose only spelling this is."""
    generator = np.random.default_rng(len(data))
    damaged = [data[:length] for length in range(len(data))][-40:]
    damaged += [data + b"\0", data + b"\1", data + b"\xff" * 9, b"\xff" * 20, b"\0" * 20, generator.bytes(len(data))]
    for _ in range(30 if data else 0):
        flipped = bytearray(data)
        flipped[generator.integers(len(data))] ^= 1 << generator.integers(8)
        damaged.append(bytes(flipped))
    for wrong in damaged:
        try:
            payload = codec.decode(wrong, shared)
        except PayloadError:
            continue
        check_bits(payload, shared.size)
        if canonical:
            assert codec.encode(payload, shared) == wrong
