"""What goes down must be contractive: the receiver is never farther from the sender after a message than before it.

A broadcast of weights says how the sender's vector differs from the receiver's, and whatever it loses is part of the
next one. That works only if a decoding is nearer to the difference than zero is. An unbiased one need not be: with the
relative squared error w it leaves w |x|^2 of |x|^2, and w is above 1 for EDEN below pi / 4 bits.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs import Codec, Kind, Shared, Vector, make_codec, registered_codecs

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "dense": [{}, {"dtype": "float16"}, {"dtype": "bfloat16"}],
    "int8": [{}, {"chunk": 3}, {"stochastic": True}],
    "eden": [{"bits": bits} for bits in (0.01, 0.1, 0.25, 0.5, 0.785, 1, 1.3, 2, 3.7, 8)],
    "drive": [{}],
    "trellis": [{"bits": bits, "memory": 6} for bits in (1 / 64, 0.1, 0.5, 1, 2.5, 4)],
    "qsgd": [{"levels": levels, "bucket": bucket} for levels in (1, 2, 64, "sqrt") for bucket in (5, 8192)],
    "topk": [{"fraction": 0.01}, {"fraction": 0.1}, {"fraction": 1.0}, {"values": "bfloat16"}],
    "ternary": [{"fraction": 0.01}, {"fraction": 0.1}, {"fraction": 1.0}],
    "fedcode": [{"clusters": 2}, {"clusters": 16}, {}],
    "dyadic": [{}],
    "steps": [{}, {"step": 0.5, "row": 32}, {"step": 100.0}],
}
CASES = [(name, options) for name, variants in OPTIONS.items() for options in variants]
SLACK = 1 + 1e-5  # Sums in float32.

every_down_codec = pytest.mark.parametrize(("name", "options"), CASES, ids=str)


def lag_after(codec: Codec[Vector], target: Vector, rounds: int, key: int) -> list[float]:
    """Send the difference to a fixed target again and again: the squared distance that is left, from the first on."""
    held, left = np.zeros_like(target), [float(np.dot(target.astype(np.float64), target))]
    for number in range(rounds):
        shared = Shared(target.size, key=key + number)
        held = held + codec.decode(codec.encode(target - held, shared), shared)
        difference = (target - held).astype(np.float64)
        left.append(float(np.dot(difference, difference)))
    return left


def test_every_codec_that_goes_down_is_here() -> None:
    assert set(OPTIONS) == {codec.name for codec in registered_codecs() if codec.kind is Kind.VECTOR}


@every_down_codec
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_message_leads_away_and_many_lead_nearer(name: str, options: dict[str, Any], data: st.DataObject) -> None:
    """For vectors of any length and shape, also of one value, where a fixed factor for all vectors would not do."""
    size = data.draw(st.integers(1, 40) | st.sampled_from([100, 1000]))
    seed, key = data.draw(st.integers(0, 2**32)), data.draw(st.integers(0, 2**60))
    heavy = data.draw(st.booleans())
    target = np.random.default_rng(seed).standard_normal(size).astype(np.float32) ** (5 if heavy else 1)
    codec = make_codec(name, **options).contractive()
    left = lag_after(codec, target, 60, key)
    floor = 1e-9 * left[0]
    for before, after in itertools.pairwise(left):
        assert after <= before * SLACK + floor
    assert left[-1] < 0.9 * left[0]


@pytest.mark.parametrize(
    ("name", "options", "kept"),
    [
        ("eden", {"bits": 0.1}, 0.1 * 2 / math.pi),
        ("eden", {"bits": 0.25}, 0.25 * 2 / math.pi),
        ("eden", {"bits": 1}, 2 / math.pi),
        ("eden", {"bits": 1.5}, (2 / math.pi + 0.8825) / 2),
        ("eden", {"bits": 2}, 0.8825),
        ("drive", {}, 2 / math.pi),
        ("qsgd", {"levels": "sqrt"}, 6 / 7),
        ("qsgd", {"levels": 1}, math.sqrt(math.pi / 2 / 8192)),
    ],
)
def test_what_is_left_of_a_normal_vector(name: str, options: dict[str, Any], kept: float) -> None:
    """An unbiased estimate e of x has E <e, x> = |x|^2 and E |e|^2 = (1 + w) |x|^2, so a e leaves 1 - 2 a + a^2 (1 + w)
    of it: least, and always below 1, at a = 1 / (1 + w), where w / (1 + w) is left and 1 / (1 + w) is gone.

    EDEN at b <= 1 bits: 1 + w = (pi / 2) / b; at 2 bits 1 / (1 + w) = 1 - D = 0.8825 with Max's distortion D = 0.1175;
    at 1.5 bits the mean of both. DRIVE: as EDEN at one bit. QSGD with s levels on n normal values: rounding adds f (1 -
    f) of a squared level |x|^2 / s^2 per value, f the fraction that is cut off. s = sqrt n: levels of one deviation,
    f nearly uniform, w = n / 6 / s^2 = 1/6. s = 1: f = |x_i| / |x|, small, so w = sum f (1 - f) is sum |x_i| / |x| =
    sqrt(2 n / pi) without its second term, sum f^2 = 1: 1 + w = sqrt(2 n / pi) exactly.
    """
    target = np.random.default_rng(0).standard_normal(1 << 17).astype(np.float32)
    codec = make_codec(name, **options).contractive()
    left = lag_after(codec, target, 1, 7)
    assert 1 - left[1] / left[0] == pytest.approx(kept, rel=0.03)


@pytest.mark.parametrize(("name", "options"), [("eden", {"bits": 0.25}), ("drive", {}), ("qsgd", {"levels": 2})])
def test_only_the_scale_differs(name: str, options: dict[str, Any]) -> None:
    """A receiver need not know which of the two it is sent: same form, same name, same length, same decoder."""
    plain = make_codec(name, **options)
    contractive, shared = plain.contractive(), Shared(8192, key=3)
    vector = np.random.default_rng(1).standard_normal(8192).astype(np.float32)
    assert repr(contractive) == repr(plain)
    decoded = plain.decode(contractive.encode(vector, shared), shared)
    np.testing.assert_array_equal(decoded, contractive.decode(contractive.encode(vector, shared), shared))
    estimate = plain.decode(plain.encode(vector, shared), shared)
    factor = np.dot(decoded, estimate) / np.dot(estimate, estimate)
    assert 0 < factor < 1
    np.testing.assert_allclose(decoded, factor * estimate, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), [("eden", {}), ("drive", {}), ("qsgd", {})])
def test_nothing_is_sent_of_nothing(name: str, options: dict[str, Any]) -> None:
    codec, shared = make_codec(name, **options).contractive(), Shared(10)
    np.testing.assert_array_equal(codec.decode(codec.encode(np.zeros(10, np.float32), shared), shared), np.zeros(10))
