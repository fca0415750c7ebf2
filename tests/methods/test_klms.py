"""Relative-entropy coding of masks: nothing learned costs nothing, and the server's mask has the client's rates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from subbit.codecs.packed import unpack_bits
from subbit.core.errors import ConfigError
from subbit.maps.bound import FULL
from subbit.methods.method import Turn
from subbit.runtime.client import client_turn
from subbit.runtime.messages import Order, decode_parts, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down, up
from tests.problems import digits_problem, mlp, settings


def workplace(hidden: int = 16, **values: object) -> Workplace:
    return Workplace(digits_problem(mlp(hidden)), settings(method="klms", **values))


def test_what_was_not_learned_costs_one_index_and_is_still_a_draw_from_theta() -> None:
    """No divergence: all 1,184 places are one block, whose index takes 8 bits beside a few bytes of lengths.

    The share of ones has a standard deviation of sqrt(0.21 / 1184) = 0.013.
    """
    method = workplace(learning_rate=0.0, theta_init=0.3).method("main")
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, digits_problem().client_data(0), Turn(0, 0, {}))
    assert update.observations["divergence"] == 0
    (part,) = method.up_parts()
    payload = part.codec.encode(update.payloads["mask"], method.shared(part, view, 0, 0))
    assert len(payload) < 20
    ones = unpack_bits(part.codec.decode(payload, method.shared(part, view, 0, 0)), method.size)
    assert ones.mean() == pytest.approx(0.3, abs=0.05)


def test_the_mask_of_the_server_has_the_rates_of_the_client_at_the_price_of_their_divergence() -> None:
    """From 0.5 to 0.6 (first half) and 0.4: KL = 0.6 log2 1.2 + 0.4 log2 0.8 = 0.02905 bits a place either way.

    At most 3 bits of divergence to a block of 8 bits: 0.0775 bits a place, more for rounding blocks down to steps and
    for their lengths; FedPM pays H(0.6) = 0.971. A half has 9,472 places: standard deviation sqrt(0.24 / 9472) = 0.005.
    """
    method = workplace(256, theta_init=0.5).method("main")
    first_half = np.arange(method.size) < method.size // 2
    posterior = np.where(first_half, 0.6, 0.4).astype(np.float32)
    (part,) = method.up_parts()
    shared = method.shared(part, method.map.initial_thresholds(), 0, 0)
    payload = part.codec.encode(posterior, shared)
    assert 0.0775 < 8 * len(payload) / method.size < 0.12
    ones = unpack_bits(part.codec.decode(payload, shared), method.size)
    assert ones[first_half].mean() == pytest.approx(0.6, abs=0.02)
    assert ones[~first_half].mean() == pytest.approx(0.4, abs=0.02)


def test_a_turn_sends_the_posterior_and_reports_its_divergence_and_no_flips() -> None:
    place = workplace(epochs=8)
    method = place.method("main")
    frames = encode_parts(method, "main", down(0), method.broadcast(method.start(), 0), None)
    reply = client_turn(place, Order("main", 0, 1, frames))
    assert reply.failure is None
    assert set(reply.observations) == {"loss", "divergence"}

    view = method.open(method.broadcast(method.start(), 0), 0)
    after = method.exchange.trained(view)
    method.trainer.train(after, digits_problem().client_data(1), Turn(0, 1, {}))
    trained = method.map.moved(view, after)
    q, p = trained / FULL, view / FULL
    divergence = (q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))).mean() / math.log(2)
    assert reply.observations["divergence"] == pytest.approx(divergence, rel=1e-3)

    payloads, examples = decode_parts(method, "main", up(0, 1), reply.frames, view)
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, payloads, examples, 0, 1)
    raised, lowered = q > p + 0.1, q < p - 0.1
    assert accumulator.counts[raised].mean() > p[raised].mean() + 0.05
    assert accumulator.counts[lowered].mean() < p[lowered].mean() - 0.05


@pytest.mark.parametrize("values", [{"rate": 0.0}, {"candidate_bits": 13}])
def test_coders_that_cannot_be_are_refused_with_the_configuration(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        settings(method="klms", **values)
