"""The sampler against its numpy twin, against hand-derived values and against what random numbers should look like."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import uniforms_numpy

from subbit.codecs.packed import pack_bits
from subbit.codecs.sampler import sample_bits, thresholds_of_counts, uniforms
from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key

COUNT = 1 << 18
KEYS = [0, 1, 1 << 63, *(derive_key(0, "mask", round_number, client) for round_number in (1, 2) for client in (0, 1))]


def correlation_in_deviations(left: np.ndarray, right: np.ndarray) -> float:
    """Of independent numbers: about standard normal."""
    return float(np.corrcoef(left.astype(np.float64), right.astype(np.float64))[0, 1] * np.sqrt(left.size))


@settings(deadline=None, max_examples=60)
@given(key=st.integers(0, 2**64 - 1), start=st.integers(0, 2**30), count=st.integers(0, 200), seed=st.integers(0, 99))
def test_kernel_equals_numpy_twin(key: int, start: int, count: int, seed: int) -> None:
    expected = uniforms_numpy(key, start, count)
    assert np.array_equal(uniforms(key, start, count), expected)
    thresholds = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    assert np.array_equal(sample_bits(thresholds, key, start), pack_bits(expected < thresholds))


def test_first_value_by_hand() -> None:
    """The formula of the module docstring in Python integers, written independently of the kernels."""

    def splitmix(value: int) -> int:
        value %= 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    key, place = 0x0123456789ABCDEF, 12345
    k0, k1 = splitmix(key) % 2**32, splitmix(key) >> 32
    k2 = splitmix(key + 0x9E3779B97F4A7C15) % 2**32
    x = place ^ k0
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x + k1) % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    x = x ^ k2
    x = (x ^ x >> 14) * 0x9E3779B1 % 2**32
    assert uniforms(key, place, 1)[0] == x ^ x >> 15


def test_stream_is_frozen() -> None:
    """Masks of old runs must stay reproducible: these values may never change."""
    assert uniforms(2024, 0, 4).tolist() == [975282746, 4055831205, 1873753229, 203367897]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 33, 1000])
def test_a_range_is_a_slice_of_the_whole(size: int) -> None:
    thresholds = np.full(2000, 1 << 31, dtype=np.uint32)
    whole = np.unpackbits(sample_bits(thresholds, 5), bitorder="little")[:2000]
    part = np.unpackbits(sample_bits(thresholds[:size], 5, start=77), bitorder="little")
    assert np.array_equal(part[:size], whole[77 : 77 + size])
    assert not part[size:].any()


def test_extreme_thresholds() -> None:
    assert not sample_bits(np.zeros(100, np.uint32), 1).any()
    assert np.unpackbits(sample_bits(np.full(96, 2**32 - 1, np.uint32), 1)).all()


def test_range_outside_the_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="outside"):
        uniforms(1, -1, 4)
    with pytest.raises(ConfigError, match="outside"):
        uniforms(1, 2**31, 1)


@pytest.mark.parametrize("key", KEYS)
def test_uniform_and_uncorrelated(key: int) -> None:
    """All bounds are about 5 standard deviations (chi-square with 255 degrees of freedom: mean 255, deviation 22.6)."""
    values = uniforms(key, 0, COUNT)
    assert abs(values.mean() / 2**32 - 0.5) < 5 * np.sqrt(1 / 12 / COUNT)
    for bit in range(32):
        assert abs((values >> np.uint32(bit) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(COUNT)
    singles = np.bincount(values >> np.uint32(24), minlength=256)
    assert abs(((singles - COUNT / 256) ** 2 / (COUNT / 256)).sum() - 255) < 5 * 22.6
    top = (values >> np.uint32(28)).astype(np.int64)
    pairs = np.bincount(top[0::2] * 16 + top[1::2], minlength=256)
    assert abs(((pairs - COUNT / 512) ** 2 / (COUNT / 512)).sum() - 255) < 5 * 22.6
    for lag in (1, 2, 3, 4, 8, 32, 1024, 4096):
        assert abs(correlation_in_deviations(values[:-lag], values[lag:])) < 5
    for bit in range(17):
        flipped = values[np.arange(COUNT) ^ (1 << bit)] ^ values
        for output in range(32):
            assert abs((flipped >> np.uint32(output) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(COUNT / 2)


def test_streams_of_related_keys_are_uncorrelated() -> None:
    base = uniforms(0, 0, COUNT)
    for bit in range(64):
        other = uniforms(1 << bit, 0, COUNT)
        assert abs(correlation_in_deviations(base, other)) < 5
        assert abs(np.bitwise_count(base ^ other).mean() - 16) < 5 * np.sqrt(8 / COUNT)
    streams = [uniforms(key, 0, COUNT) for key in KEYS]
    for index, left in enumerate(streams):
        for right in streams[:index]:
            assert abs(correlation_in_deviations(left, right)) < 5
            # No key walks through the numbers of another one at a shift.
            assert abs(correlation_in_deviations(left[1:], right[:-1])) < 5


def test_sampled_frequency_follows_the_threshold() -> None:
    for parts in (1, 100, 500, 900, 999):
        threshold = (parts << 32) // 1000
        bits = sample_bits(np.full(COUNT, threshold, np.uint32), 3)
        expected = parts / 1000
        frequency = np.unpackbits(bits).mean()
        assert abs(frequency - expected) < 5 * np.sqrt(expected * (1 - expected) / COUNT)


def test_mode_by_hand() -> None:
    """Total 4: c 2^30; clamp 1/100: e = floor(2^32 / 100) = 42949672, top 2^32 - 1 - e = 4252017623."""
    assert thresholds_of_counts(4).tolist() == [42949672, 1 << 30, 1 << 31, 3 << 30, 4252017623]
    assert thresholds_of_counts(2, clamp_numerator=0).tolist() == [0, 1 << 31, 2**32 - 1]


def test_mean_by_hand() -> None:
    """Beta(1, 1) and 2 masks: (1 + c) / 4. Beta(2, 2) and 4 masks: (2 + c) / 8."""
    assert thresholds_of_counts(2, "mean").tolist() == [1 << 30, 1 << 31, 3 << 30]
    assert thresholds_of_counts(4, "mean", prior=2).tolist() == [(2 + count) << 29 for count in range(5)]


@pytest.mark.parametrize("estimator", ["mode", "mean"])
def test_no_masks_say_one_half(estimator: str) -> None:
    assert thresholds_of_counts(0, estimator).tolist() == [1 << 31]


@given(total=st.integers(1, 400), estimator=st.sampled_from(["mode", "mean"]))
def test_thresholds_rise_with_the_count(total: int, estimator: str) -> None:
    table = thresholds_of_counts(total, estimator).astype(np.int64)
    assert table.size == total + 1
    assert (np.diff(table) >= 0).all()


def test_senseless_tables_are_refused() -> None:
    for arguments in ((-1, "mode"), (65536, "mode"), (3, "median")):
        with pytest.raises(ConfigError):
            thresholds_of_counts(*arguments)
    with pytest.raises(ConfigError):
        thresholds_of_counts(3, "mean", prior=0)
    with pytest.raises(ConfigError):
        thresholds_of_counts(3, clamp_numerator=1, clamp_denominator=2)


def test_same_bits_without_numba() -> None:
    """Another process, no compiled code, the same draws."""
    program = (
        "import json, numpy as np; from subbit.codecs.sampler import sample_bits, uniforms;"
        "print(json.dumps([uniforms(9, 3, 50).tolist(), sample_bits(np.full(77, 1 << 31, np.uint32), 9, 3).tolist()]))"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert not printed.stderr
    there = json.loads(printed.stdout)
    assert there == [uniforms(9, 3, 50).tolist(), sample_bits(np.full(77, 1 << 31, np.uint32), 9, 3).tolist()]
