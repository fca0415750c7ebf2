from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.eden import Eden, normal_centroids
from subbit.codecs.rotation import block_count
from subbit.core.errors import ConfigError, PayloadError


def gaussian(size: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def error(codec: Eden, vector: Vector, key: int = 1) -> float:
    shared = Shared(size=vector.size, key=key)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    return float(np.sum((decoded - vector) ** 2) / np.sum(vector**2))


def test_centroids_of_one_two_and_three_bits() -> None:
    """One bit: E|z| = sqrt(2 / pi) = 0.79788. Two and three: table I of Max, "Quantizing for minimum distortion",
    1960."""
    assert normal_centroids(0).tolist() == [0]
    assert normal_centroids(1)[1] == pytest.approx(math.sqrt(2 / math.pi), abs=1e-5)
    assert normal_centroids(2)[2:] == pytest.approx([0.4528, 1.510], abs=5e-4)
    assert normal_centroids(3)[4:] == pytest.approx([0.2451, 0.7560, 1.344, 2.152], abs=5e-4)


@pytest.mark.parametrize("bits", range(1, 9))
def test_centroids_are_the_means_of_their_cells(bits: int) -> None:
    """Lloyd's fixed point: c_i = E[z | b_i-1 < z < b_i] = (phi(b_i-1) - phi(b_i)) / (Phi(b_i) - Phi(b_i-1))."""
    centroids = normal_centroids(bits).astype(float)
    assert np.all(np.diff(centroids) > 0)
    assert np.array_equal(centroids, -centroids[::-1])
    edges = (centroids[1:] + centroids[:-1]) / 2
    density = np.array([0, *map(NormalDist().pdf, edges), 0])
    mass = np.diff([0, *map(NormalDist().cdf, edges), 1])
    assert np.abs(-np.diff(density) / mass - centroids).max() < 2**-16


@pytest.mark.parametrize(("bits", "expected"), [(1, 0.571), (2, 0.1331), (3, 0.0358), (4, 0.0096)])
@pytest.mark.parametrize("size", [1 << 18, 250_007])
def test_error_of_whole_bits(bits: int, expected: float, size: int) -> None:
    """D the distortion of the quantiser for N(0, 1), E c^2 = E c z = 1 - D, so |estimate|^2 = |x|^2 / (1 - D) and the
    normalised error is D / (1 - D): pi / 2 - 1 with D = 1 - 2 / pi; 0.1175 / 0.8825; 0.03455 / 0.96545; 0.0095 /
    0.9905."""
    assert error(Eden(bits), gaussian(size)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("bits", "expected"), [(0.5, math.pi - 1), (0.1, 5 * math.pi - 1), (1.5, 1 / 0.75955 - 1)])
def test_error_of_fractions(bits: float, expected: float) -> None:
    """Below one bit a share p of the values carries E|z| sqrt(2 / pi) = 2 / pi each: error pi / (2 p) - 1. At 1.5 bits
    half of them are of one bit and half of two: E c z = (0.6366 + 0.8825) / 2."""
    assert error(Eden(bits), gaussian(1 << 18)) == pytest.approx(expected, rel=0.02)


@given(st.integers(0, 20_000), st.sampled_from([0.1, 0.7, 1, 1.5, 2, 3.25, 8]))
@settings(max_examples=60, deadline=None)
def test_bytes_are_bits_times_values_and_one_scale_a_block(size: int, bits: float) -> None:
    data = Eden(bits).encode(gaussian(size), Shared(size=size, key=3))
    least = bits * size / 8 + 4 * block_count(size)
    assert least <= len(data) <= least + math.ceil(bits) + block_count(size) / 8 + 1


@given(st.integers(1, 2000), st.integers(0, 2**64 - 1), st.sampled_from([0.7, 1, 2, 2.5]))
@settings(max_examples=60, deadline=None)
def test_the_estimate_has_the_right_length_along_the_vector(size: int, key: int, bits: float) -> None:
    """<estimate, x> = |x|^2 for every draw of the rotation: the definition of the scale."""
    vector = gaussian(size, seed=key)
    shared = Shared(size=size, key=key)
    decoded = Eden(bits).decode(Eden(bits).encode(vector, shared), shared)
    assert np.dot(decoded.astype(float), vector) == pytest.approx(np.dot(vector, vector), rel=1e-4)


@pytest.mark.parametrize("bits", [0.5, 1, 1.5, 2])
@pytest.mark.parametrize("kind", ["gaussian", "two spikes", "constant"])
def test_the_mean_over_keys_tends_to_the_vector(bits: float, kind: str) -> None:
    """The squared distance of the mean of K unbiased estimates is the mean error / K; a bias of a tenth of |x| would
    add 0.01."""
    vector = {"gaussian": gaussian(100), "two spikes": np.zeros(100), "constant": np.ones(100)}[kind].astype(np.float32)
    if kind == "two spikes":
        vector[[3, 50]] = 2, 1
    keys = 800
    total, errors = np.zeros(100), 0.0
    for key in range(keys):
        shared = Shared(size=100, key=key)
        decoded = Eden(bits).decode(Eden(bits).encode(vector, shared), shared)
        total += decoded
        errors += float(np.sum((decoded - vector) ** 2))
    assert np.sum((total / keys - vector) ** 2) < 1.6 * errors / keys**2


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64, 8192, 8193])
def test_zero_vectors_stay_zero(size: int) -> None:
    shared = Shared(size=size)
    zeros = np.zeros(size, np.float32)
    for bits in (0.5, 1, 2.5):
        assert np.array_equal(Eden(bits).decode(Eden(bits).encode(zeros, shared), shared), zeros)


def test_a_single_value_is_exact() -> None:
    shared = Shared(size=1)
    for bits in (0.3, 1, 2):
        decoded = Eden(bits).decode(Eden(bits).encode(np.array([-3.5], np.float32), shared), shared)
        assert decoded == pytest.approx([-3.5], rel=1e-4)


@pytest.mark.parametrize("magnitude", [2.0**100, 1e-30, 1e-44])
def test_extreme_magnitudes_stay_finite(magnitude: float) -> None:
    vector = (np.sign(gaussian(10_000)) * np.float32(magnitude)).astype(np.float32)
    shared = Shared(size=vector.size)
    assert np.isfinite(Eden(2).decode(Eden(2).encode(vector, shared), shared)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**101])
def test_values_that_cannot_be_rotated_are_refused(bad: float) -> None:
    vector = gaussian(10)
    vector[4] = bad
    with pytest.raises(PayloadError) as caught:
        Eden().encode(vector, Shared(size=10))
    assert caught.value.cause == "value"


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, 3e38])
def test_scales_that_no_sender_makes_are_refused(scale: float) -> None:
    shared = Shared(size=1000)
    data = Eden().encode(gaussian(1000), shared)
    with pytest.raises(PayloadError) as caught:
        Eden().decode(np.float32(scale).tobytes() + data[4:], shared)
    assert caught.value.cause == "value"


@pytest.mark.parametrize("bits", [0.4, 1, 2.5])
def test_other_lengths_and_dirty_padding_are_refused(bits: float) -> None:
    shared = Shared(size=1001)
    data = Eden(bits).encode(gaussian(1001), shared)
    for forged in (b"", data[:-1], data + b"\0", data[:-1] + bytes([data[-1] | 0x80])):
        with pytest.raises(PayloadError):
            Eden(bits).decode(forged, shared)


@pytest.mark.parametrize("bits", [0, -1, 8.5, math.nan])
def test_impossible_bits_are_a_configuration_error(bits: float) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        Eden(bits)
