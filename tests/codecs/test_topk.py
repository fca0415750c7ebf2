from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.dense import Dense
from subbit.codecs.rice import Rice
from subbit.codecs.topk import TopK, largest_places, with_error_feedback
from subbit.core.errors import ConfigError, PayloadError

values = st.one_of(st.floats(-(2.0**100), 2.0**100, width=32), st.sampled_from([0.0, 1.0, -1.0]))
vectors = st.integers(0, 50).flatmap(lambda size: arrays(np.float32, size, elements=values))


@given(vectors, st.sampled_from([0.01, 0.1, 0.5, 0.9, 1.0]))
@settings(deadline=None)
def test_the_largest_arrive_exactly_and_the_rest_as_zero(vector: Vector, fraction: float) -> None:
    """Oracle: a stable sort by falling magnitude."""
    codec, shared = TopK(fraction), Shared(size=vector.size)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    kept = np.argsort(-np.abs(vector), kind="stable")[: codec.count(vector.size)]
    expected = np.zeros_like(vector)
    expected[kept] = vector[kept]
    assert np.array_equal(decoded, expected)


def test_ties_go_to_the_lower_place() -> None:
    assert largest_places(np.array([1, -2, 2, 2, 1], np.float32), 2).tolist() == [False, True, True, False, False]
    assert largest_places(np.array([1, -2, 2, 2, 1], np.float32), 4).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("fraction", "size", "count"), [(0.07, 100, 7), (0.1, 1, 1), (0.1, 0, 0), (0.1, 11, 2), (1, 5, 5)]
)
def test_the_count_is_the_ceiling_of_the_decimal(fraction: float, size: int, count: int) -> None:
    """In binary floating point 0.07 * 100 is 7.000000000000001, whose ceiling is 8."""
    assert TopK(fraction).count(size) == count


def test_bytes_are_values_and_places_at_their_entropy() -> None:
    """log2 C(10^5, 10^4) / 10^5 = 0.469 bits; Rice is up to 1.5% above. Values: 1.6 bits of float16 for each place."""
    vector = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    data = TopK(0.1, "float16").encode(vector, Shared(size=100_000))
    assert 1.6 + 0.468 < 8 * len(data) / 100_000 < 1.6 + 0.469 * 1.02


@given(st.sampled_from(["float32", "float16", "bfloat16"]))
def test_the_values_may_be_of_sixteen_bits(value_format: str) -> None:
    vector = np.array([0.1, -3.1415926, 2.7182818, 0], np.float32)
    shared = Shared(size=4)
    codec = TopK(0.5, value_format)
    rounded = Dense(value_format).decode(Dense(value_format).encode(vector, shared), shared)
    assert codec.decode(codec.encode(vector, shared), shared).tolist() == [0, rounded[1], rounded[2], 0]


def test_places_that_are_too_many_too_few_or_outside_are_refused() -> None:
    shared = Shared(size=40)
    codec = TopK(0.1)
    data = codec.encode(np.arange(40, dtype=np.float32), shared)
    for ones in (3, 5):
        places = Rice().encode(np.packbits(np.arange(40) < ones, bitorder="little"), shared)
        with pytest.raises(PayloadError, match="exactly 4"):
            codec.decode(data[:16] + places, shared)
    for forged in (b"", data[:10], data[:-1], data + b"\0", b"\xff" * len(data)):
        with pytest.raises(PayloadError):
            codec.decode(forged, shared)
    with pytest.raises(PayloadError) as caught:
        codec.decode(np.float32(np.inf).tobytes() + data[4:], shared)
    assert caught.value.cause == "value"


def test_error_feedback_loses_nothing_in_the_long_run() -> None:
    """What was sent plus what is held back is all that was ever given, here exactly, as all sums are small integers.
    Each round adds 1 + ... + 30 = 465 and sends three places, so in the long run a place waits until it holds 465 / 3 =
    155: 155 rounds for the smallest, which without feedback would wait for ever."""
    shared, codec = Shared(size=30), TopK(0.1)
    vector = np.arange(1, 31, dtype=np.float32)
    residual, sent = np.zeros(30, np.float32), np.zeros(30)
    for round_number in range(1, 301):
        data, residual = with_error_feedback(codec, vector, residual, shared)
        sent += codec.decode(data, shared)
        assert np.array_equal(sent + residual, round_number * vector)
    assert np.count_nonzero(sent) == 30


@pytest.mark.parametrize("options", [{"fraction": 0}, {"fraction": 1.1}, {"values": "float8"}])
def test_bad_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        TopK(**options)  # type: ignore[arg-type]
