"""Flips under common random numbers: the four drifts, by law, on damaged bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_laws import booleans, check_hostile, check_roundtrip
from hypothesis import given, settings

from subbit.codecs.codec import Shared
from subbit.codecs.context import CONTEXTS, Context, _logarithm, _tables
from subbit.codecs.packed import unpack_bits, xor_bits
from subbit.codecs.ranged import Range
from subbit.codecs.sampler import sample_bits
from subbit.core.errors import ConfigError, PayloadError

DRIFTS = {
    "dense N(0, .1)": lambda generator, size: generator.normal(0, 0.1, size),
    "10% N(0, 1)": lambda generator, size: generator.normal(0, 1, size) * (generator.random(size) < 0.1),
    "1% N(0, 2)": lambda generator, size: generator.normal(0, 2, size) * (generator.random(size) < 0.01),
    "dense N(0, 1)": lambda generator, size: generator.normal(0, 1, size),
}


def thresholds_of(logits: np.ndarray) -> np.ndarray:
    return np.clip(2**32 / (1 + np.exp(-logits)), 1, 2**32 - 1).astype(np.uint32)


def flips_of_a_drift(name: str, size: int, key: int) -> tuple[np.ndarray, Shared]:
    generator = np.random.default_rng(key)
    logits = generator.normal(0, 2, size)
    before, after = thresholds_of(logits), thresholds_of(logits + DRIFTS[name](generator, size))
    flips = xor_bits(sample_bits(before, key), sample_bits(after, key))
    return unpack_bits(flips, size), Shared(size, thresholds=before, uniforms_key=key)


def shared_of(size: int) -> Shared:
    thresholds = thresholds_of(np.random.default_rng(size).normal(0, 3, size))
    return Shared(size, thresholds=thresholds, uniforms_key=9)


@pytest.mark.parametrize("name", DRIFTS)
def test_smaller_than_the_static_code(name: str) -> None:
    """1.8 times on a dense small drift; never more than 1% larger, whatever the drift."""
    flips, shared = flips_of_a_drift(name, 1_000_000, key=3)
    context = len(check_roundtrip(Context(), flips, shared))
    static = len(check_roundtrip(Range(), flips, shared))
    assert context <= 1.01 * static
    if name == "dense N(0, .1)":
        assert 1.8 * context <= static


@settings(deadline=None, max_examples=100)
@given(values=booleans)
def test_roundtrip(values: np.ndarray) -> None:
    """Of any bits, also those that no drift makes."""
    data = check_roundtrip(Context(), values, shared_of(values.size))
    if not values.any():
        assert data == b"\0"


@settings(deadline=None, max_examples=25)
@given(values=booleans)
def test_damage(values: np.ndarray) -> None:
    shared = shared_of(values.size)
    check_hostile(Context(), check_roundtrip(Context(), values, shared), shared)


@pytest.mark.parametrize("threshold", [0, 1, 2**31, 2**32 - 1])
def test_extreme_thresholds(threshold: int) -> None:
    shared = Shared(500, thresholds=np.full(500, threshold, np.uint32), uniforms_key=1)
    check_roundtrip(Context(), np.arange(500) % 7 == 0, shared)


def test_logarithms_against_floats() -> None:
    values = np.arange(1, 1 << 17, 2, dtype=np.uint64)
    exact = np.log2(values.astype(np.float64)) * 1024
    found = _logarithm(values)
    assert found.max() < 17 * 1024
    # The squared mantissas lose at most a few of their 31 bits in ten steps.
    assert ((found <= exact + 1e-6) & (found > exact - 1.001)).all()


def test_contexts_by_hand() -> None:
    """Below 16 units: 0. From 16 on four per octave: 16..19 is 1, 20..23 is 2, 28..31 is 4, 32..39 is 5, 64 is 9. The
    logit of the middle of the lower half, (2 * 16384 + 1) / (2^17 - 32769), is log2 1/3 = -1.58496 bits, -1623 units.
    """
    logits, context_of_distance = _tables()
    found = [int(context_of_distance[distance]) for distance in (0, 15, 16, 19, 20, 31, 32, 39, 40, 64)]
    assert found == [0, 0, 1, 1, 2, 4, 5, 5, 6, 9]
    assert context_of_distance.max() == CONTEXTS - 1
    assert abs(int(logits[16384]) - 1024 * math.log2(1 / 3)) < 2
    assert np.array_equal(logits, -logits[::-1])


def test_needs_the_draw() -> None:
    thresholds = np.zeros(8, np.uint32)
    with pytest.raises(ConfigError, match="key"):
        Context().encode(np.ones(1, np.uint8), Shared(8, thresholds=thresholds))
    with pytest.raises(ConfigError, match="threshold"):
        Context().decode(b"\0", Shared(8, uniforms_key=1))


@pytest.mark.parametrize("data", [b"", b"\x09", b"\x00\x00", b"\x01", b"\x01" + bytes(20)])
def test_refusals(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Context().decode(data, shared_of(8))
