from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.int8 import Int8
from subbit.core.errors import ConfigError, PayloadError

values = st.floats(-(2.0**100), 2.0**100, width=32)
vectors = st.integers(0, 40).flatmap(lambda size: arrays(np.float32, size, elements=values))


@given(vectors, st.booleans(), st.integers(1, 9))
@settings(deadline=None)
def test_each_value_is_off_by_less_than_a_step_of_its_chunk(vector: Vector, stochastic: bool, chunk: int) -> None:
    codec, shared = Int8(chunk=chunk, stochastic=stochastic), Shared(size=vector.size, key=1)
    data = codec.encode(vector, shared)
    assert len(data) == vector.size + 4 * -(-vector.size // chunk)
    error = np.abs(codec.decode(data, shared).astype(float) - vector)
    for start in range(0, vector.size, chunk):
        largest = float(np.abs(vector[start : start + chunk]).max())
        step = largest / 127 * (1 if stochastic else 0.5)
        assert error[start : start + chunk].max() <= step + 1e-6 * largest + 1e-43


def test_steps_and_levels_by_hand() -> None:
    """Chunk (254, -127, 3): step 254 / 127 = 2, levels 127, -63.5 -> -64 and 1.5 -> 2 (ties to even). Chunk (0): step
    0."""
    shared = Shared(size=4)
    codec = Int8(chunk=3)
    data = codec.encode(np.array([254, -127, 3, 0], np.float32), shared)
    assert data == np.array([2, 0], "<f4").tobytes() + np.array([127, -64, 2, 0], np.int8).tobytes()
    assert codec.decode(data, shared).tolist() == [254, -128, 4, 0]


def test_stochastic_rounding_is_unbiased() -> None:
    """One draw has a variance of at most step^2 / 4; the mean of 2000 lies within 5 standard deviations, 0.056
    steps."""
    vector = np.array([127, 0.3, -0.3, 0.5, -90.9], np.float32)
    decoded = [
        Int8(stochastic=True).decode(Int8(stochastic=True).encode(vector, shared), shared)
        for shared in (Shared(size=5, key=key) for key in range(2000))
    ]
    assert np.abs(np.mean(decoded, axis=0) - vector).max() < 0.056
    assert np.std(decoded, axis=0)[1] > 0.4


def test_hostile_bytes_are_refused() -> None:
    shared = Shared(size=2)
    data = Int8().encode(np.array([1, -1], np.float32), shared)
    forged = [data[:-1], data + b"\0", data[:-1] + b"\x80"]
    forged += [np.float32(step).tobytes() + data[4:] for step in (np.nan, np.inf, -1, 3e38)]
    for bad in forged:
        with pytest.raises(PayloadError):
            Int8().decode(bad, shared)


def test_what_would_overflow_is_refused() -> None:
    vector = np.array([np.finfo(np.float32).max], np.float32)
    try:
        data = Int8().encode(vector, Shared(size=1))
    except PayloadError:
        return
    assert np.isfinite(Int8().decode(data, Shared(size=1))).all()


def test_an_empty_chunk_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError):
        Int8(chunk=0)
