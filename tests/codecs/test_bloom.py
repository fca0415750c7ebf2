"""Bloom filters: DeepReduce's sizes by hand, and the rate that the theory gives for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_filter_codecs import random_bits
from test_fuse import random_positions

from subbit.codecs import Shared, make_codec
from subbit.codecs.bloom import BloomShape, bloom_shape, build_bloom, query_bloom, rate_for_budget
from subbit.codecs.packed import unpack_bits
from subbit.core.errors import PayloadError


def test_sizes_by_hand() -> None:
    """1000 keys at 1%: 1000 * 6.6439 / 0.6931 = 9585.06 bits, 1199 bytes, and ceil(6.64) = 7 hashes. At 1/256 it is
    8 / 0.6931 = 11.54 bits per key and 8 hashes. A rate of one half takes 1.4427 bits per key and one hash."""
    assert bloom_shape(1000, 0.01) == BloomShape(1199, 7)
    assert bloom_shape(1000, 1 / 256) == BloomShape(1443, 8)
    assert bloom_shape(1000, 0.5) == BloomShape(181, 1)
    assert bloom_shape(1, 0.999) == BloomShape(1, 1)
    with pytest.raises(PayloadError, match="can be addressed"):
        bloom_shape(1 << 31, 0.1)


def test_budget_of_deepreduce() -> None:
    """Half of the bits set and 1.09 bits per parameter: 2.18 bits per key, f = 2^(-2.18 * 0.6931) = 0.351."""
    assert rate_for_budget(500_000, 1_090_000) == pytest.approx(0.3509, abs=1e-4)
    assert bloom_shape(500_000, rate_for_budget(500_000, 1_090_000)) == BloomShape(136_250, 2)


@pytest.mark.parametrize("rate", [0.3, 0.05, 1 / 256, 1e-4])
def test_rate_is_that_of_the_theory(rate: float) -> None:
    """With m bits, k keys and h hashes a place passes with (1 - exp(-h k / m))^h. Which bits are set varies with the
    keys too: within six standard deviations of the binomial law and 3% more."""
    size, count = 400_001, 8_000
    positions, shape, seed = random_positions(count, size), bloom_shape(count, rate), np.uint64(77)
    found = unpack_bits(query_bloom(build_bloom(positions, seed, shape), seed, shape.hash_count, size), size)
    assert found[positions].all()
    passing = (1 - math.exp(-shape.hash_count * count / (8 * shape.byte_count))) ** shape.hash_count
    expected = (size - count) * passing
    assert abs(int(found.sum()) - count - expected) <= 6 * expected**0.5 + 0.03 * expected


def test_bits_of_a_key_by_hand() -> None:
    """The formula of the docstring in Python integers, for one key."""
    shape, seed, place = BloomShape(50, 5), np.uint64(3), 123
    value = place + 3
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * multiplier % 2**64
    value ^= value >> 33
    step = (value >> 32 | (value << 32) % 2**64) | 1
    expected = {(value + turn * step) % 2**64 * 400 >> 64 for turn in range(5)}
    filled = build_bloom(np.array([place], np.uint32), seed, shape)
    assert set(np.flatnonzero(unpack_bits(filled, 400)).tolist()) == expected


def test_payload_lengths() -> None:
    """500 of 10,000 places at the default rate, 0.1 * 0.05 = 0.005: 500 * 7.6439 / 0.6931 = 5513.9 bits, 690 bytes,
    after a varint of 2 bytes. A budget of 0.4 bits per parameter: 4000 bits."""
    bits, shared = random_bits(500, 10_000), Shared(10_000)
    assert len(make_codec("bloom").encode(bits, shared)) == 692
    assert len(make_codec("bloom", target_bpp=0.4).encode(bits, shared)) == 502
    assert len(make_codec("bloom", false_positive_rate=0.5).encode(bits, shared)) == 2 + 91


def test_more_bits_than_the_keys_can_set_are_refused() -> None:
    codec, shared = make_codec("bloom", false_positive_rate=0.01), Shared(1000)
    data = codec.encode(random_bits(3, 1000), shared)
    with pytest.raises(PayloadError, match="more bits set than 3 keys"):
        codec.decode(data[:1] + b"\xff" * (len(data) - 1), shared)
