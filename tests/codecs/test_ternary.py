"""Sparse ternary values: a vector by hand, exactness on ternary vectors, error feedback, bytes near the entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from subbit.codecs import Shared, make_codec
from subbit.codecs.topk import with_error_feedback
from subbit.core.errors import ConfigError, PayloadError


def test_the_largest_values_by_hand() -> None:
    """Half of four values: -4 and 2 are the largest, their mean magnitude is 3."""
    codec, shared = make_codec("ternary", fraction=0.5), Shared(4)
    vector = np.array([1.0, -4.0, 2.0, 0.5], np.float32)
    assert codec.decode(codec.encode(vector, shared), shared).tolist() == [0.0, -3.0, 3.0, 0.0]


def test_nothing_costs_nothing() -> None:
    codec = make_codec("ternary")
    assert codec.encode(np.zeros(1000, np.float32), Shared(1000)) == b""
    assert not codec.decode(b"", Shared(1000)).any()


@given(hnp.arrays(np.int8, st.integers(1, 300), elements=st.integers(-1, 1)), st.floats(2.0**-20, 2.0**20, width=32))
def test_a_ternary_vector_arrives_as_it_is(signs: np.ndarray, magnitude: float) -> None:
    codec, shared = make_codec("ternary", fraction=None), Shared(signs.size)
    vector = (signs * np.float32(magnitude)).astype(np.float32)
    np.testing.assert_array_equal(codec.decode(codec.encode(vector, shared), shared), vector)


@given(hnp.arrays(np.float32, 50, elements=st.floats(-100, 100, width=32)), st.sampled_from([0.02, 0.1, 1.0]))
def test_with_error_feedback_what_is_sent_and_what_is_left_is_everything(vector: np.ndarray, fraction: float) -> None:
    codec, shared = make_codec("ternary", fraction=fraction), Shared(50)
    data, residual = with_error_feedback(codec, vector, np.zeros(50, np.float32), shared)
    np.testing.assert_allclose(codec.decode(data, shared) + residual, vector, atol=1e-4)


def test_bytes_are_near_the_entropy_of_places_and_signs() -> None:
    """0.5% of the places: H(0.005) + 0.005 bits for each place of the vector, within 2% and 40 bytes."""
    size, share = 400_000, 0.005
    generator = np.random.default_rng(1)
    vector = np.zeros(size, np.float32)
    places = generator.choice(size, int(size * share), replace=False)
    vector[places] = generator.choice([-1.0, 1.0], places.size)
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share) + share
    found = len(make_codec("ternary", fraction=None).encode(vector, Shared(size)))
    assert entropy * size / 8 * 0.99 < found < entropy * size / 8 * 1.02 + 40


def test_hostile_payloads_are_refused() -> None:
    codec, shared = make_codec("ternary", fraction=None), Shared(64)
    vector = np.zeros(64, np.float32)
    vector[[3, 40]] = 1.5, -1.5
    good = codec.encode(vector, shared)
    for bad in (good[:-1], good + b"\0", good[:4] + b"\x03" + good[5:], b"\0\0\0\0" + good[4:]):
        with pytest.raises(PayloadError):
            codec.decode(bad, shared)
    negative = np.float32(-1).tobytes() + good[4:]
    with pytest.raises(PayloadError, match="must be above 0"):
        codec.decode(negative, shared)
    with pytest.raises(ConfigError, match="fraction"):
        make_codec("ternary", fraction=0.0)
