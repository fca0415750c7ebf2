from __future__ import annotations

import math

import numpy as np
import pytest
from tests.oracles import rotate, rotate_back

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.drive import Drive
from subbit.codecs.eden import Eden
from subbit.core.errors import PayloadError


def gaussian(size: int) -> Vector:
    return np.random.default_rng(size).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 5, 64, 100, 8191, 8192])
def test_one_block_against_the_definition(size: int) -> None:
    """S = |x|^2 / |R x|_1 and estimate = R' (S sign(R x)), from the public rotation and numpy."""
    vector = gaussian(size)
    shared = Shared(size=size, key=11)
    data = Drive().encode(vector, shared)
    rotated = rotate(vector, 11)
    scale = np.dot(vector.astype(float), vector) / np.abs(rotated.astype(float)).sum()
    assert np.frombuffer(data[:4], "<f4")[0] == pytest.approx(scale, rel=1e-5)
    assert data[4:] == np.packbits(rotated >= 0, bitorder="little").tobytes()
    expected = rotate_back(np.where(rotated >= 0, scale, -scale).astype(np.float32), 11)
    assert Drive().decode(data, shared) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("size", [1 << 18, 250_007])
def test_error_and_bits(size: int) -> None:
    shared = Shared(size=size, key=5)
    vector = gaussian(size)
    data = Drive().encode(vector, shared)
    decoded = Drive().decode(data, shared)
    assert np.sum((decoded - vector) ** 2) / np.sum(vector**2) == pytest.approx(math.pi / 2 - 1, abs=0.01)
    assert 8 * len(data) / size <= 1.005


def test_the_estimate_is_that_of_eden_at_one_bit() -> None:
    vector, shared = gaussian(20_000), Shared(size=20_000, key=8)
    drive = Drive().decode(Drive().encode(vector, shared), shared)
    assert drive == pytest.approx(Eden(1).decode(Eden(1).encode(vector, shared), shared), rel=1e-4, abs=1e-5)


def test_senders_with_keys_of_their_own_average_out_and_with_one_key_do_not() -> None:
    vector = gaussian(4096)
    for keys, expected in ((range(30), 0.571 / 30), ([7] * 30, 0.571)):
        senders = [Shared(size=4096, key=key) for key in keys]
        mean = np.mean([Drive().decode(Drive().encode(vector, shared), shared) for shared in senders], axis=0)
        assert np.sum((mean - vector) ** 2) / np.sum(vector**2) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_zero_vectors(size: int) -> None:
    shared, zeros = Shared(size=size), np.zeros(size, np.float32)
    assert np.array_equal(Drive().decode(Drive().encode(zeros, shared), shared), zeros)


def test_truncated_bytes_are_refused() -> None:
    shared = Shared(size=100)
    data = Drive().encode(gaussian(100), shared)
    for length in range(len(data)):
        with pytest.raises(PayloadError):
            Drive().decode(data[:length], shared)
