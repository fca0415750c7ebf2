"""Bloom filters of masks: what a budget buys, and that the surplus of the server is what the client counted."""

from __future__ import annotations

import numpy as np
import pytest

from subbit.codecs.packed import count_ones, pack_bits, unpack_bits
from subbit.core.errors import ConfigError
from subbit.methods.method import Turn
from subbit.runtime.client import client_turn
from subbit.runtime.messages import Order, decode_parts, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down, up
from tests.problems import digits_problem, mlp, settings


def workplace(hidden: int = 16, **values: object) -> Workplace:
    return Workplace(digits_problem(mlp(hidden)), settings(method="deepreduce", **values))


def test_the_budget_of_the_paper_turns_a_third_of_all_zeros_into_ones() -> None:
    """d = 256 * 74 = 18,944, half of it ones, 1.1 bits per place: ceil(1.1 d / 8) = 2,605 bytes of filter.

    f = 2^(-1.1 ln 2 / 0.5) = 0.347 asks for log2(1/f) = 1.52 hashes, rounded up to 2. A bit of the filter stays zero
    with probability exp(-2 * 0.5 / 1.1) = 0.403, so a zero passes both tests with (1 - 0.403)^2 = 0.3566. Of 9,472
    zeros 3,378, with a standard deviation of 47.
    """
    method = workplace(256, preset="paper").method("main")
    (part,) = method.up_parts()
    shared = method.shared(part, method.map.initial_thresholds(), 0, 0)
    mask = pack_bits(np.arange(method.size) % 2 == 0)
    payload = part.codec.encode(mask, shared)
    assert len(payload) == 2 + 2605  # The number of ones takes two bytes.
    decoded = part.codec.decode(payload, shared)
    assert count_ones(mask & ~decoded) == 0
    assert count_ones(decoded) - 9472 == pytest.approx(3378, abs=150)


def test_the_own_rate_of_deepreduce_costs_three_bits_per_parameter() -> None:
    """f = 0.1 * 0.5 = 0.05: 0.5 log2(20) / ln 2 = 3.1176 bits per place, 7,383 bytes; 5 hashes."""
    method = workplace(256).method("main")
    (part,) = method.up_parts()
    shared = method.shared(part, method.map.initial_thresholds(), 0, 0)
    payload = part.codec.encode(pack_bits(np.arange(method.size) % 2 == 0), shared)
    assert len(payload) == 2 + 7383


def test_the_client_counts_exactly_the_ones_that_the_server_reads_too_many() -> None:
    place = workplace(target_bpp=0.8)
    method = place.method("main")
    frames = encode_parts(method, "main", down(0), method.broadcast(method.start(), 0), None)
    reply = client_turn(place, Order("main", 0, 1, frames))
    assert reply.failure is None
    view = method.open(method.broadcast(method.start(), 0), 0)
    payloads, examples = decode_parts(method, "main", up(0, 1), reply.frames, view)
    meant = method.train(view, digits_problem().client_data(1), Turn(0, 1, {})).payloads["mask"]
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, payloads, examples, 0, 1)
    surplus = accumulator.counts - unpack_bits(meant, method.size).astype(np.int64)
    assert surplus.min() == 0
    assert surplus.sum() == reply.observations["false_flips"] > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target_bpp": 1.1, "false_positive_rate": 0.1}, "exclude each other"),
        ({"preset": "paper", "false_positive_rate": 0.1}, "exclude each other"),
        ({"target_bpp": 0.0}, "target_bpp"),
        ({"false_positive_rate": 1.0}, "false_positive_rate"),
    ],
)
def test_filters_that_cannot_be_are_refused_with_the_configuration(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(method="deepreduce", **values)
