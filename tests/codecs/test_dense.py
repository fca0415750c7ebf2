from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.dense import Dense
from subbit.core.errors import ConfigError, PayloadError

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.integers(0, 40).flatmap(lambda size: arrays(np.float32, size, elements=finite))


@given(vectors)
@settings(deadline=None)
def test_float32_is_exact_bit_for_bit(vector: Vector) -> None:
    shared = Shared(size=vector.size)
    data = Dense().encode(vector, shared)
    assert len(data) == 4 * vector.size
    assert np.array_equal(Dense().decode(data, shared).view(np.uint32), vector.view(np.uint32))


def test_the_bytes_are_little_endian_floats() -> None:
    """1.5 = 0x3FC00000 in float32, 0x3E00 in half, 0x3FC0 in bfloat16."""
    vector = np.array([1.5], np.float32)
    shared = Shared(size=1)
    assert Dense().encode(vector, shared).hex() == "0000c03f"
    assert Dense("float16").encode(vector, shared).hex() == "003e"
    assert Dense("bfloat16").encode(vector, shared).hex() == "c03f"


def test_bfloat16_rounds_ties_to_even() -> None:
    """bfloat16 keeps 7 bits of the fraction: near 1 its step is 2^-7, so 1 + 2^-8 is half-way to an even
    neighbour below and 1 + 3 * 2^-8 half-way to an even one above; a hair above the middle rounds up."""
    vector = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 3 * 2**-8)], np.float32)
    codec, shared = Dense("bfloat16"), Shared(size=4)
    decoded = codec.decode(codec.encode(vector, shared), shared)
    assert decoded.tolist() == [1.0, 1 + 2**-6, 1 + 2**-7, -(1 + 2**-6)]


@given(arrays(np.float32, 20, elements=st.floats(-65000, 65000, width=32)))
@settings(deadline=None)
def test_sixteen_bits_round_as_torch_does(vector: Vector) -> None:
    shared = Shared(size=20)
    for dtype, kind in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        codec = Dense(dtype)
        decoded = codec.decode(codec.encode(vector, shared), shared)
        assert np.array_equal(decoded, torch.from_numpy(vector).to(kind).to(torch.float32).numpy())


def test_only_the_float32_form_calls_itself_exact() -> None:
    assert [Dense(dtype).exact for dtype in ("float32", "float16", "bfloat16")] == [True, False, False]


def test_what_rounds_to_infinity_is_refused() -> None:
    """65519 rounds to 65504, the largest half; 65520 is half-way to 65536 and would become infinity."""
    shared = Shared(size=1)
    half = Dense("float16")
    assert half.decode(half.encode(np.array([65519], np.float32), shared), shared)[0] == 65504
    with pytest.raises(PayloadError, match="too large for float16"):
        half.encode(np.array([65520], np.float32), shared)
    with pytest.raises(PayloadError, match="too large for bfloat16"):
        Dense("bfloat16").encode(np.array([np.finfo(np.float32).max], np.float32), shared)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_cross_the_wire_in_neither_direction(dtype: str, bad: float) -> None:
    vector = np.array([0, bad], np.float32)
    shared = Shared(size=2)
    with pytest.raises(PayloadError, match="at place 1") as caught:
        Dense(dtype).encode(vector, shared)
    assert caught.value.cause == "value"
    kind = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[dtype]
    forged = torch.from_numpy(vector).to(kind).view(torch.uint8).numpy().tobytes()
    with pytest.raises(PayloadError) as caught:
        Dense(dtype).decode(forged, shared)
    assert caught.value.cause == "value"


@pytest.mark.parametrize("length", [0, 3, 7, 9, 12])
def test_a_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(PayloadError, match="8 bytes"):
        Dense().decode(bytes(length), Shared(size=2))


@pytest.mark.parametrize("payload", [np.zeros(3, np.float32), np.zeros(2), np.zeros((2, 1), np.float32), [0.0, 0.0]])
def test_a_payload_of_another_type_or_shape_is_refused(payload: Vector) -> None:
    with pytest.raises(PayloadError, match=r"shape \(2,\)"):
        Dense().encode(payload, Shared(size=2))


def test_the_decoded_vector_may_be_written_to() -> None:
    decoded = Dense().decode(bytes(8), Shared(size=2))
    decoded[0] = 1


def test_an_unknown_dtype_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="bfloat16"):
        Dense("float8")
