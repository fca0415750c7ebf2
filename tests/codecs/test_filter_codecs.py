"""The filters as codecs: nothing that was sent is lost, the rest at the promised rate, headers that lie are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs import Bits, Shared, make_codec
from subbit.codecs.fuse import fuse_shape
from subbit.codecs.packed import bits_of_positions, count_ones
from subbit.codecs.varint import write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.randomness import numpy_generator

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("bfuse", {}),
    ("bfuse", {"arity": 3}),
    ("bfuse", {"bits": 16, "container": "raw"}),
    ("bfuse", {"bits": 32, "arity": 3, "container": "smallest"}),
    ("bfuse", {"container": "png"}),
    ("xor", {}),
    ("xor", {"bits": 16, "container": "png"}),
    ("xor", {"bits": 32, "container": "smallest"}),
    ("lane", {}),
    ("lane", {"container": "raw"}),
    ("bloom", {}),
    ("bloom", {"false_positive_rate": 0.01}),
    ("bloom", {"target_bpp": 1.1}),
]
variants = pytest.mark.parametrize(("name", "options"), VARIANTS)


def random_bits(count: int, size: int, key: int = 0) -> Bits:
    return bits_of_positions(numpy_generator(key).choice(size, count, replace=False), size)


@variants
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_one_is_ever_lost(name: str, options: dict[str, Any], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 700))
    places = data.draw(st.sets(st.integers(0, size - 1), max_size=size))
    shared = Shared(size, key=data.draw(st.integers(0, 2**64 - 1)))
    codec = make_codec(name, **options)
    bits = bits_of_positions(np.array(sorted(places), np.uint32), size)
    decoded = codec.decode(codec.encode(bits, shared), shared)
    assert decoded.dtype == np.uint8
    assert decoded.size == bits.size
    assert not (bits & ~decoded).any()
    assert size % 8 == 0 or int(decoded[-1]) >> size % 8 == 0


@variants
@pytest.mark.parametrize("size", [0, 1, 2, 9, 255, 256, 5000])
def test_none_one_two_and_all(name: str, options: dict[str, Any], size: int) -> None:
    codec, shared = make_codec(name, **options), Shared(size, key=17)
    for count in {0, min(1, size), min(2, size), size}:
        bits = random_bits(count, size)
        data = codec.encode(bits, shared)
        assert (data == b"") == (count == 0)
        decoded = codec.decode(data, shared)
        assert not (bits & ~decoded).any()
        if count in (0, size):  # Of nothing and of everything nothing is false.
            assert np.array_equal(decoded, bits)


@variants
def test_the_key_decides_which_zeros_are_hit(name: str, options: dict[str, Any]) -> None:
    codec, bits = make_codec(name, **options), random_bits(300, 30_000)
    first, second = (codec.encode(bits, Shared(30_000, key=key)) for key in (1, 2))
    assert first != second
    assert codec.encode(bits, Shared(30_000, key=1)) == first


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [("bfuse", {}, 2**-8), ("bfuse", {"bits": 16}, 2**-16), ("xor", {}, 2**-8), ("lane", {}, 2**-8)],
)
def test_false_positive_rate(name: str, options: dict[str, Any], wrong: float) -> None:
    """Binomial with n = size - count and p = 2^-bits: within six standard deviations, for several keys."""
    size, count = 300_000, 3_000
    codec = make_codec(name, **options)
    ones = random_bits(count, size)
    for key in range(3):
        shared = Shared(size, key=key)
        extra = count_ones(codec.decode(codec.encode(ones, shared), shared)) - count
        expected = (size - count) * wrong
        assert abs(extra - expected) <= 6 * max(1.0, expected**0.5)


@variants
def test_headers_that_lie(name: str, options: dict[str, Any]) -> None:
    codec, shared = make_codec(name, **options), Shared(1000, key=5)
    data = codec.encode(random_bits(120, 1000), shared)
    assert data[0] == 120
    rest = data[1:]
    if "target_bpp" not in options:  # Then the length does not depend on the number of keys.
        with pytest.raises(PayloadError):
            codec.decode(write_varint(999) + rest, shared)
    for lie in (
        write_varint(0) + rest,
        write_varint(1001) + rest,  # More keys than places.
        write_varint(2**40) + rest,
        b"\xf8\x00" + rest,  # 120, not in its shortest form.
        b"\xff" * 20,
        b"\x78",
        b"\x00",
    ):
        with pytest.raises(PayloadError):
            codec.decode(lie, shared)
    for length in range(1, len(data)):
        with pytest.raises(PayloadError):
            codec.decode(data[:length], shared)
    with pytest.raises(PayloadError):
        codec.decode(data + b"\0", shared)


def test_binary_fuse_payload_length() -> None:
    """20,000 keys (varint of 3 bytes) and one byte of seed and container before the slots."""
    slots = fuse_shape(20_000, 4).slot_count
    for bits in (8, 16, 32):
        data = make_codec("bfuse", bits=bits, container="raw").encode(random_bits(20_000, 10**6), Shared(10**6))
        assert len(data) == 4 + slots * bits // 8


def test_bits_of_another_size_are_refused() -> None:
    with pytest.raises(PayloadError):
        make_codec("bfuse").encode(random_bits(3, 100), Shared(120))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bfuse", {"bits": 12}),
        ("bfuse", {"arity": 5}),
        ("bfuse", {"container": "zip"}),
        ("bfuse", {"ways": 3}),
        ("xor", {"bits": 4}),
        ("xor", {"arity": 4}),
        ("lane", {"bits": 16}),
        ("lane", {"container": "gif"}),
        ("bloom", {"false_positive_rate": 0.0}),
        ("bloom", {"false_positive_rate": 1.0}),
        ("bloom", {"false_positive_rate": float("nan")}),
        ("bloom", {"target_bpp": -1.0}),
        ("bloom", {"false_positive_rate": 0.1, "target_bpp": 1.0}),
    ],
)
def test_options_that_make_no_sense(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_codec(name, **options)
