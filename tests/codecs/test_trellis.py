from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.eden import Eden
from subbit.codecs.rotation import block_bounds, block_count
from subbit.codecs.trellis import Trellis, normal_table
from subbit.codecs.trellis_search import nearest_path, values_of_path
from subbit.core.errors import ConfigError, PayloadError


def gaussian(size: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def error(codec: Trellis | Eden, vector: Vector, key: int = 1) -> float:
    shared = Shared(size=vector.size, key=key)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    return float(np.sum((decoded - vector) ** 2) / np.sum(vector**2))


@pytest.mark.parametrize("bits", [0.25, 0.5, 0.75, 1, 1.5, 2, 3])
def test_error_lies_between_the_bound_and_that_of_eden(bits: float) -> None:
    """Shannon: D >= 4^-bits for a normal source, and the unbiased estimate has w = D / (1 - D) >= 1 / (4^bits - 1)."""
    vector, bound = gaussian(1 << 15), 1 / (4**bits - 1)
    found = error(Trellis(bits, memory=10), vector)
    assert bound < found < 1.5 * bound
    assert found < 0.8 * error(Eden(bits), vector)


def test_more_memory_loses_less() -> None:
    errors = [error(Trellis(1.0, memory=memory), gaussian(1 << 14)) for memory in (4, 8, 12)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1.3 * errors[-1]


@pytest.mark.parametrize(("size", "bits"), [(6, 9), (9, 9), (10, 4), (7, 3), (3, 12), (1, 4), (12, 1)])
def test_no_other_path_is_nearer(size: int, bits: int) -> None:
    """All 2^bits paths of a short vector, one by one, with several values a step, one, and several bits a step."""
    table, scale = normal_table(4), np.float32(0.9)
    for seed in range(5):
        values, path = gaussian(size, seed), np.zeros((bits + 7) // 8, np.uint8)
        nearest_path(values, bits, table, scale, path)
        found = np.empty_like(values)
        values_of_path(path, bits, table, found)
        distances = []
        for each in itertools.product((0, 1), repeat=bits):
            other = np.empty_like(values)
            values_of_path(np.packbits(np.array(each, np.uint8), bitorder="little"), bits, table, other)
            distances.append(float(np.sum((values - scale * other) ** 2)))
        assert np.sum((values - scale * found) ** 2) == pytest.approx(min(distances), rel=1e-5)


def test_values_along_a_path_by_hand() -> None:
    """Two bits of memory, states 0 to 3, one value a bit: bits 1, 1, 0, 1 visit the states 1, 3, 2, 1."""
    table = np.array([10, 11, 12, 13], np.float32)
    values = np.empty(4, np.float32)
    values_of_path(np.array([0b1011], np.uint8), 4, table, values)
    assert values.tolist() == [11, 13, 12, 11]


def test_a_table_is_a_shuffled_normal_distribution() -> None:
    table = normal_table(10).astype(float)
    assert np.mean(table**2) == pytest.approx(1, abs=1e-3)
    assert np.sum(table) == pytest.approx(0, abs=1e-2)
    assert len({*table.tolist()}) == 1024
    assert abs(np.corrcoef(table[1:], table[:-1])[0, 1]) < 0.1


@given(st.integers(0, 20_000), st.sampled_from([1 / 64, 0.1, 0.7, 1, 1.5, 4]))
@settings(max_examples=40, deadline=None)
def test_bytes_are_bits_times_values_and_one_scale_a_block(size: int, bits: float) -> None:
    codec = Trellis(bits, memory=4)
    data = codec.encode(gaussian(size), Shared(size=size, key=3))
    assert len(data) == codec.fixed_length(size)
    assert abs(len(data) - bits * size / 8 - 4 * block_count(size)) <= 1 + block_count(size)


@given(st.integers(1, 2000), st.integers(0, 2**64 - 1), st.sampled_from([0.3, 1, 2.5]))
@settings(max_examples=40, deadline=None)
def test_the_estimate_has_the_right_length_along_the_vector(size: int, key: int, bits: float) -> None:
    """<estimate, x> = |x|^2 for every draw of the rotation: the definition of the scale. Of a vector that no path
    points to, nothing is sent."""
    vector, shared, codec = gaussian(size, seed=key), Shared(size=size, key=key), Trellis(bits, memory=6)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    expected = np.zeros_like(vector)
    for start, end in block_bounds(size):
        expected[start:end] = vector[start:end]
    assert not decoded.any() or np.dot(decoded.astype(float), vector) == pytest.approx(np.dot(vector, vector), rel=1e-4)


@pytest.mark.parametrize("bits", [0.25, 0.5, 1])
def test_the_mean_over_keys_is_the_vector(bits: float) -> None:
    """Unbiased: the squared error of the mean of n estimates is w / n. A vector of few large values is the hard case:
    without `mixed_order` the error would be ten times as large."""
    vector = np.zeros(512, np.float32)
    vector[:3] = 5, -2, 1
    codec, count = Trellis(bits, memory=6), 400
    estimates = []
    for key in range(count):
        shared = Shared(vector.size, key=key * 7919 + 1)
        estimates.append(codec.decode(codec.encode(vector, shared), shared).astype(float))
    energy = float(np.sum(vector.astype(float) ** 2))
    single = np.mean([np.sum((each - vector) ** 2) for each in estimates]) / energy
    mean = np.sum((np.mean(estimates, axis=0) - vector) ** 2) / energy
    assert mean == pytest.approx(single / count, rel=0.5)


def test_zeros_and_huge_values() -> None:
    shared = Shared(100, key=1)
    nothing = np.zeros(100, np.float32)
    assert np.array_equal(Trellis().decode(Trellis().encode(nothing, shared), shared), nothing)
    with pytest.raises(PayloadError, match="too large"):
        Trellis().encode(np.full(100, 2.0**110, np.float32), shared)


def test_bad_frames_are_refused() -> None:
    shared = Shared(101, key=1)
    data = bytearray(Trellis().encode(gaussian(101), shared))
    for damaged in (data[:-1], data + b"\0", b""):
        with pytest.raises(PayloadError):
            Trellis().decode(bytes(damaged), shared)
    padded = bytes(data[:-1]) + bytes([data[-1] | 0x80])
    with pytest.raises(PayloadError, match="padding"):
        Trellis().decode(padded, shared)
    negative = np.array([-1], "<f4").tobytes() + bytes(data[4:])
    with pytest.raises(PayloadError, match="negative"):
        Trellis().decode(negative, shared)
    infinite = np.array([3e38], "<f4").tobytes() + bytes(data[4:])
    with pytest.raises(PayloadError):
        Trellis().decode(infinite, shared)


@pytest.mark.parametrize("options", [{"bits": 0.0}, {"bits": 5}, {"bits": math.nan}, {"memory": 3}, {"memory": 17}])
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Trellis(**options)  # type: ignore[arg-type]
