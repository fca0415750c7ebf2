"""Flips near their threshold: by hand, by law, as small as `context`, on damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from exact_laws import booleans, check_hostile, check_roundtrip
from hypothesis import given, settings
from test_context import DRIFTS, flips_of_a_drift, shared_of, thresholds_of

from subbit.codecs.bit_rans import open_bit_stream, take_bit, with_word, write_bit_stream
from subbit.codecs.codec import Shared
from subbit.codecs.context import Context
from subbit.codecs.near import Near, is_worth_it
from subbit.codecs.near_places import CUTS
from subbit.codecs.packed import pack_bits, unpack_bits, xor_bits
from subbit.codecs.ranged import Range
from subbit.codecs.rice import Rice
from subbit.codecs.sampler import sample_bits, uniforms
from subbit.codecs.smallest import MANY, Flips
from subbit.core.errors import ConfigError, PayloadError

EMPTY = (1 << 32).to_bytes(6, "little")


def one_near(size: int, place: int) -> Shared:
    """Only this place lies near its threshold, which is its uniform. The others are as far away as can be."""
    drawn = uniforms(5, 0, size)
    thresholds = np.where(drawn < 1 << 31, (1 << 32) - 1, 0).astype(np.uint32)
    thresholds[place] = drawn[place]
    return Shared(size, thresholds=thresholds, uniforms_key=5)


def test_by_hand() -> None:
    """Place 3 is near and starts at a rate of 2^-1. A one owns the upper half of 2^16 slots: the state 2^32 becomes
    2^32 / 2^15 * 2^16 + 0 + 2^15. Place 7 is listed by rice."""
    flips, shared = np.isin(np.arange(10), [3, 7]), one_near(10, 3)
    listed = Rice().encode(pack_bits(np.arange(10) == 7), shared)
    stream = ((1 << 33) + (1 << 15)).to_bytes(6, "little") + EMPTY
    data = bytes([0, 1, len(listed)]) + listed + stream
    assert np.array_equal(Near().decode(data, shared), pack_bits(flips))
    none = bytes([0, 1, 1, 0]) + (1 << 33).to_bytes(6, "little") + EMPTY
    assert not Near().decode(none, shared).any()


def test_a_near_place_is_not_listed() -> None:
    shared = one_near(10, 3)
    listed = Rice().encode(pack_bits(np.arange(10) == 3), shared)
    data = bytes([0, 1, len(listed)]) + listed + (1 << 33).to_bytes(6, "little") + EMPTY
    with pytest.raises(PayloadError, match="are not the code"):
        Near().decode(data, shared)


@pytest.mark.parametrize("start", [b"", b"\0", bytes([CUTS.size, 1]), bytes([0, 0]), bytes([0, 17])])
def test_cut_and_exponent(start: bytes) -> None:
    with pytest.raises(PayloadError, match="no cut and exponent"):
        Near().decode(start + b"\1\0" + 2 * EMPTY if len(start) == 2 else start, one_near(10, 3))


def test_stream_against_integers() -> None:
    """Bits at all probabilities, read by the rule of the coder."""
    generator = np.random.default_rng(1)
    zeros = generator.integers(1, 1 << 16, 5000).astype(np.uint32)
    zeros[:4] = 1, 1, (1 << 16) - 1, (1 << 16) - 1
    bits = generator.integers(0, 1 << 16, 5000) >= zeros
    bits[:4] = 0, 1, 0, 1
    data = write_bit_stream(zeros | (bits.astype(np.uint32) << np.uint32(16)))
    states, words, count = open_bit_stream(data, 0)
    queue = [int(word) for word in words]
    turn = [int(state) for state in states]
    for index in range(5000):
        state, zero = turn[index % 2], int(zeros[index])
        slot = state % (1 << 16)
        assert (slot >= zero) == bits[index]
        with np.errstate(over="ignore"):
            after, mask = take_bit(np.uint64(state), zeros[index])
        assert int(mask) == ((1 << 64) - 1 if bits[index] else 0)
        state = ((1 << 16) - zero if bits[index] else zero) * (state >> 16) + slot - (zero if bits[index] else 0)
        assert int(after) == state
        if state < 1 << 32:
            word = queue.pop(0)
            assert int(with_word(after, np.uint16(word))) == state << 16 | word
            state = state << 16 | word
        turn[index % 2] = state
    assert turn == [1 << 32, 1 << 32]
    assert not queue
    assert count == len(words)


@pytest.mark.parametrize("name", DRIFTS)
def test_as_small_as_context(name: str) -> None:
    flips, shared = flips_of_a_drift(name, MANY, key=3)
    chosen = check_roundtrip(Flips(), flips, shared)
    assert chosen[0] == Near.number
    assert len(chosen) <= 1.005 * len(Context().encode(pack_bits(flips), shared))


def test_of_no_use_where_flips_have_nothing_to_do_with_the_draw() -> None:
    shared = shared_of(MANY)
    flips = np.random.default_rng(0).random(MANY) < 0.05
    assert not is_worth_it(pack_bits(flips), shared)
    assert check_roundtrip(Flips(), flips, shared)[0] == Range.number


def test_smaller_where_layers_drift_differently() -> None:
    generator, size = np.random.default_rng(0), 1 << 21
    logits = generator.normal(0, 2, size)
    moved = logits + generator.normal(0, 1, size) * np.where(np.arange(size) < size // 2, 0.03, 0.3)
    before = thresholds_of(logits)
    flips = unpack_bits(xor_bits(sample_bits(before, 1), sample_bits(thresholds_of(moved), 1)), size)
    shared = Shared(size, thresholds=before, uniforms_key=1)
    near, context = (len(codec.encode(pack_bits(flips), shared)) for codec in (Near(), Context()))
    assert near <= 0.97 * context


@settings(deadline=None, max_examples=100)
@given(values=booleans)
def test_roundtrip(values: np.ndarray) -> None:
    """Of any bits, also those that no drift makes."""
    check_roundtrip(Near(), values, shared_of(values.size))


@settings(deadline=None, max_examples=25)
@given(values=booleans)
def test_damage(values: np.ndarray) -> None:
    shared = shared_of(values.size)
    check_hostile(Near(), check_roundtrip(Near(), values, shared), shared, canonical=False)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4095, 4096, 4097, 100_000])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 1.0])
def test_sizes_around_blocks(size: int, rate: float) -> None:
    check_roundtrip(Near(), np.random.default_rng(size).random(size) < rate, shared_of(size))


@pytest.mark.parametrize("threshold", [0, 1, 2**31, 2**32 - 1])
def test_extreme_thresholds(threshold: int) -> None:
    shared = Shared(500, thresholds=np.full(500, threshold, np.uint32), uniforms_key=1)
    check_roundtrip(Near(), np.arange(500) % 7 == 0, shared)


def test_needs_the_draw() -> None:
    with pytest.raises(ConfigError, match="key of the uniforms"):
        Near().encode(np.zeros(1, np.uint8), Shared(8, thresholds=np.zeros(8, np.uint32)))
    with pytest.raises(ConfigError, match="threshold"):
        Near().decode(b"", Shared(8, uniforms_key=1))
