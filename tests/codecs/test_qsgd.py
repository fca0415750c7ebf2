from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.qsgd import Qsgd
from subbit.codecs.symbols import encode_symbols
from subbit.core.errors import ConfigError, PayloadError

values = st.floats(-(2.0**100), 2.0**100, width=32)
vectors = st.integers(0, 40).flatmap(lambda size: arrays(np.float32, size, elements=values))


@given(vectors, st.sampled_from([1, 2, 7, "sqrt"]), st.integers(1, 50))
@settings(deadline=None)
def test_each_value_moves_by_less_than_a_level_and_keeps_its_sign(
    vector: Vector, levels: int | str, bucket: int
) -> None:
    codec, shared = Qsgd(levels, bucket), Shared(size=vector.size, key=9)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    assert np.all(decoded * np.sign(vector) >= 0)
    for start in range(0, vector.size, bucket):
        part = slice(start, start + bucket)
        norm = float(np.linalg.norm(vector[part].astype(float)))
        count = levels if isinstance(levels, int) else max(1, int(min(bucket, vector.size) ** 0.5))
        assert np.abs(decoded[part].astype(float) - vector[part]).max() <= norm / count * (1 + 1e-6) + 1e-43


def test_error_and_bits_of_a_normal_vector() -> None:
    """Levels of one standard deviation: stochastic rounding at a distance t from the level below has variance t (1 -
    t), which is 1/6 on average over t. A norm of 8192 normal values is 90.5, and 90 levels make the step 90.5 / 90: 1/6
    x 1.011."""
    vector = np.random.default_rng(0).standard_normal(1 << 17).astype(np.float32)
    shared = Shared(size=vector.size, key=4)
    data = Qsgd().encode(vector, shared)
    error = np.sum((Qsgd().decode(data, shared) - vector) ** 2) / np.sum(vector**2)
    assert error == pytest.approx(1.011 / 6, rel=0.01)
    assert 8 * len(data) / vector.size == pytest.approx(2.16, abs=0.01)


@pytest.mark.parametrize("levels", [1, 2, "sqrt"])
def test_the_mean_over_keys_tends_to_the_vector(levels: int | str) -> None:
    """The squared distance of the mean of K unbiased estimates is the mean error / K, with a relative spread of about
    sqrt(2 / 40) = 0.22 in 40 dimensions."""
    vector = np.random.default_rng(1).standard_normal(40).astype(np.float32)
    codec, keys = Qsgd(levels), 1500
    decoded = np.array(
        [codec.decode(codec.encode(vector, shared), shared) for shared in (Shared(size=40, key=k) for k in range(keys))]
    )
    errors = np.sum((decoded - vector) ** 2, axis=1)
    assert np.sum((decoded.mean(axis=0) - vector) ** 2) < 2 * errors.mean() / keys


def test_a_single_value_is_exact() -> None:
    shared = Shared(size=1)
    for levels in (1, 3, "sqrt"):
        assert Qsgd(levels).decode(Qsgd(levels).encode(np.array([-7.25], np.float32), shared), shared).tolist() == [
            -7.25
        ]


@pytest.mark.parametrize("size", [0, 1, 2, 100])
def test_zero_vectors_stay_zero(size: int) -> None:
    shared, zeros = Shared(size=size), np.zeros(size, np.float32)
    assert np.array_equal(Qsgd().decode(Qsgd().encode(zeros, shared), shared), zeros)


def test_a_norm_beyond_float32_is_refused() -> None:
    with pytest.raises(PayloadError, match="norm"):
        Qsgd().encode(np.full(4, 3e38, np.float32), Shared(size=4))


def test_hostile_bytes_are_refused() -> None:
    shared, codec = Shared(size=30), Qsgd(2)
    data = codec.encode(np.arange(30, dtype=np.float32), shared)
    forged = [b"", data[:3], data[:-1], data + b"\0"]
    forged += [np.float32(norm).tobytes() + data[4:] for norm in (np.nan, np.inf, -1)]
    forged.append(data[:4] + encode_symbols(np.full(30, 5, np.uint16), 6))  # Levels go up to 2 x 2.
    for bad in forged:
        with pytest.raises(PayloadError):
            codec.decode(bad, shared)


@pytest.mark.parametrize("options", [{"levels": 0}, {"levels": "square"}, {"levels": 40_000}, {"bucket": 0}])
def test_bad_options(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Qsgd(**options)
