"""The automatic choices: never larger than what they choose from, whatever both sides know."""

from __future__ import annotations

import numpy as np
import pytest
from exact_laws import booleans, check_hostile, check_roundtrip, draw_booleans
from hypothesis import given, settings
from hypothesis import strategies as st
from test_context import DRIFTS, flips_of_a_drift, shared_of

from subbit.codecs.codec import Shared
from subbit.codecs.context import Context
from subbit.codecs.near import Near
from subbit.codecs.packed import Packed, pack_bits
from subbit.codecs.ranged import Range, RangePrior
from subbit.codecs.rice import Rice
from subbit.codecs.sampler import sample_bits
from subbit.codecs.smallest import Flips, Mask
from subbit.core.errors import PayloadError

SLACK = 4
"""An entropy decides whether the range coder is tried: it may be some bytes off."""


@settings(deadline=None, max_examples=80)
@given(values=booleans, informed=st.booleans())
def test_flips_are_as_small_as_the_best(values: np.ndarray, informed: bool) -> None:
    shared = shared_of(values.size) if informed else Shared(values.size)
    data = check_roundtrip(Flips(), values, shared)
    codecs = [Packed(), Rice(), Range(), Range(adaptive=True), *([Context(), Near()] if informed else [])]
    smallest = min(len(codec.encode(pack_bits(values), shared)) for codec in codecs)
    assert len(data) <= (1 + smallest + SLACK if values.any() else 0)


@settings(deadline=None, max_examples=80)
@given(values=booleans, informed=st.booleans())
def test_masks_are_as_small_as_the_best(values: np.ndarray, informed: bool) -> None:
    shared = shared_of(values.size) if informed else Shared(values.size)
    data = check_roundtrip(Mask(), values, shared)
    codecs = [Packed(), Range(), Range(adaptive=True), *([RangePrior()] if informed else [])]
    assert len(data) <= 1 + SLACK + min(len(codec.encode(pack_bits(values), shared)) for codec in codecs)


@settings(deadline=None, max_examples=25)
@given(values=booleans, informed=st.booleans())
def test_damage(values: np.ndarray, informed: bool) -> None:
    shared = shared_of(values.size) if informed else Shared(values.size)
    for codec in (Flips(), Mask()):
        check_hostile(codec, check_roundtrip(codec, values, shared), shared, canonical=False)


def test_no_flips_cost_nothing() -> None:
    assert Flips().encode(np.zeros(125, np.uint8), Shared(1000)) == b""


@pytest.mark.parametrize(
    ("drift", "chosen"),
    [("dense N(0, .1)", Near.number), ("10% N(0, 1)", Context.number), ("dense N(0, 1)", Context.number)],
)
def test_flips_of_a_drift_choose_their_distance(drift: str, chosen: int) -> None:
    assert drift in DRIFTS
    flips, shared = flips_of_a_drift(drift, 50_000, key=5)
    assert check_roundtrip(Flips(), flips, shared)[0] == chosen


def test_fair_bits_are_packed() -> None:
    values = draw_booleans(1000, 0.5, seed=1, clustered=False)
    assert check_roundtrip(Mask(), values, Shared(1000))[0] == Packed.number
    assert check_roundtrip(Flips(), values, Shared(1000))[0] == Packed.number


def test_even_flips_take_one_rate_and_layers_take_several() -> None:
    """The range coder says in the lowest bit of its header which form it has."""
    even = draw_booleans(100_000, 0.05, seed=2, clustered=False)
    data = check_roundtrip(Flips(), even, Shared(even.size))
    assert (data[0], data[1] & 1) == (Range.number, 0)
    layers = np.concatenate([draw_booleans(100_000, rate, seed=3, clustered=False) for rate in (0.002, 0.1)])
    data = check_roundtrip(Flips(), layers, Shared(layers.size))
    assert (data[0], data[1] & 1) == (Range.number, 1)


def test_a_mask_drawn_from_its_prior_takes_the_prior() -> None:
    shared = shared_of(2000)
    values = np.unpackbits(sample_bits(shared.thresholds, 4), bitorder="little")[:2000].astype(np.bool_)
    assert check_roundtrip(Mask(), values, shared)[0] == RangePrior.number


def test_choices_that_the_receiver_cannot_read_are_refused() -> None:
    for codec, number in ((Flips(), Context.number), (Flips(), RangePrior.number), (Mask(), RangePrior.number)):
        with pytest.raises(PayloadError, match="possible are") as caught:
            codec.decode(bytes([number, 1, 2, 3]), Shared(1000))
        assert caught.value.cause == "codec"
    with pytest.raises(PayloadError):
        Mask().decode(b"", Shared(8))
    with pytest.raises(PayloadError, match="nothing flips"):
        Flips().decode(bytes([Rice.number, 0]), Shared(8))
