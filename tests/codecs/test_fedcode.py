from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subbit.codecs.codebook import FedCode, apply_codebook, assign, fit_codebook
from subbit.codecs.codec import Shared, Vector
from subbit.core.errors import ConfigError, PayloadError

values = st.one_of(st.floats(-(2.0**100), 2.0**100, width=32), st.sampled_from([0.0, -0.0, 1.0]))
vectors = st.integers(0, 60).flatmap(lambda size: arrays(np.float32, size, elements=values))


@given(vectors, st.integers(1, 8))
@settings(deadline=None)
def test_every_value_becomes_its_nearest_centroid(vector: Vector, clusters: int) -> None:
    codec, shared = FedCode(clusters), Shared(size=vector.size)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    codebook = fit_codebook(vector, clusters)
    assert codebook.size <= clusters
    assert np.all(np.diff(codebook) > 0)
    if vector.size:
        distances = np.abs(vector[:, None].astype(float) - codebook.astype(float))
        chosen = np.abs(vector.astype(float) - decoded)
        # A boundary rounded to float32 may hand a value to a centroid that is farther by that rounding.
        assert np.all(chosen <= distances.min(axis=1) + 1e-6 * np.abs(codebook).max() + 1e-43)


@given(st.lists(st.sampled_from([-2.5, 0.0, 1.0, 3.0, 1e-30]), max_size=30))
@settings(deadline=None)
def test_few_distinct_values_are_exact(listed: list[float]) -> None:
    vector, shared = np.array(listed, np.float32), Shared(size=len(listed))
    assert np.array_equal(FedCode(5).decode(FedCode(5).encode(vector, shared), shared), vector)


def test_two_groups_by_hand() -> None:
    """Means (0 + 1 + 2) / 3 = 1 and (10 + 12) / 2 = 11. Two means, sure of each other: the boundary 6 moves nothing."""
    vector = np.array([10, 0, 1, 12, 2], np.float32)
    assert fit_codebook(vector, 2).tolist() == [1, 11]
    assert assign(vector, np.array([1, 11], np.float32)).tolist() == [1, 0, 0, 1, 0]
    assert apply_codebook(np.array([1, 0], np.uint8), np.array([1, 11], np.float32)).tolist() == [11, 1]


@given(arrays(np.float32, st.integers(10, 60), elements=st.floats(-100, 100, width=32)), st.integers(2, 5))
@settings(deadline=None)
def test_the_fit_is_a_fixed_point_of_k_means(vector: Vector, clusters: int) -> None:
    codebook = fit_codebook(vector, clusters)
    levels = assign(vector, codebook)
    means = [vector[levels == level].astype(float).mean() for level in range(codebook.size)]
    assert codebook == pytest.approx(means, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(("clusters", "distortion"), [(2, 0.3634), (4, 0.1175), (16, 0.0095), (64, 0.000644)])
def test_error_on_normal_values_is_that_of_the_best_quantiser(clusters: int, distortion: float) -> None:
    """Distortions of the Lloyd-Max quantiser of the normal distribution (Max 1960)."""
    vector = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    snapped = apply_codebook(assign(vector, fit_codebook(vector, clusters)), fit_codebook(vector, clusters))
    assert np.mean((vector - snapped) ** 2) == pytest.approx(distortion, rel=0.04)


def test_bytes_are_a_codebook_and_at_most_log2_of_its_size_a_value() -> None:
    vector = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    data = FedCode(64).encode(vector, Shared(size=vector.size))
    assert 5.5 < 8 * (len(data) - 1 - 64 * 4) / vector.size < 5.8


def test_hostile_bytes_are_refused() -> None:
    shared, codec = Shared(size=30), FedCode(4)
    data = codec.encode(np.arange(30, dtype=np.float32), shared)
    forged = [b"", data[:1], data[:9], data[:-1], data + b"\0", bytes([4]) + data[1:], bytes([255]) + data[1:]]
    forged += [data[:1] + np.float32(value).tobytes() + data[5:] for value in (np.nan, np.inf, 1e9)]
    for bad in forged:
        with pytest.raises(PayloadError):
            codec.decode(bad, shared)
    with pytest.raises(PayloadError):
        codec.decode(data, Shared(size=0))
    with pytest.raises(PayloadError):  # More centroids than values.
        codec.decode(data, Shared(size=3))


@pytest.mark.parametrize("clusters", [0, 257])
def test_bad_options(clusters: int) -> None:
    with pytest.raises(ConfigError):
        FedCode(clusters)
