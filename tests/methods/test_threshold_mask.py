"""Deterministic masks: which theta reaches the threshold, and that what goes up is what was trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from subbit.codecs.packed import unpack_bits
from subbit.core.errors import ConfigError
from subbit.methods.fedpm import FedPM
from subbit.methods.method import Turn
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def make(**values: object) -> FedPM:
    chosen = settings(method="threshold-mask", **values)
    return Workplace(digits_problem(), chosen).method("main")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("tau", "kept"), [(0.0, [1, 1, 1, 1]), (0.005, [1, 1, 1, 1]), (0.2, [0, 1, 1, 1]), (0.5, [0, 0, 1, 1])]
)
def test_the_network_keeps_what_enough_clients_kept(tau: float, kept: list[int]) -> None:
    """0, 1, 2, 3 of 3 clients: theta is 0.01 (clamped), 1/3, 2/3, 0.99."""
    method = make(tau=tau, weights="keep")
    flat = method.task.flat
    state = {"counts": np.arange(method.size, dtype=np.uint16) % 4, "total": 3}
    method.write_network(state, "thresholded", 0)
    assert torch.equal(flat.weights[:4], flat.initial[:4] * torch.tensor(kept))
    method.write_network(state, "expected", 0)
    assert flat.weights[1].item() == pytest.approx(flat.initial[1].item() / 3, rel=1e-5)


def test_a_theta_that_equals_tau_is_kept_and_one_below_is_not() -> None:
    """theta = 1/4 is the integer 2^30, as is ceil(2^32 / 4)."""
    at, below = 1 << 30, (1 << 30) - 1
    thresholds = np.array([at, below], dtype=np.uint32)
    assert unpack_bits(make(tau=0.25).map.cut_mask(thresholds), 2).tolist() == [True, False]
    largest = np.array([0xFFFFFFFF], dtype=np.uint32)
    assert unpack_bits(make(tau=0.999999999).map.cut_mask(largest), 1).tolist() == [True]


def test_without_learning_the_thresholded_broadcast_comes_back() -> None:
    method = make(learning_rate=0.0, tau=0.4)
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, digits_problem().client_data(0), Turn(0, 0, {}))
    expected = view / 2.0**32 >= 0.4
    assert 0 < expected.sum() < method.size
    assert np.array_equal(unpack_bits(update.payloads["mask"], method.size), expected)


def test_the_mask_that_goes_up_is_the_network_that_was_trained_and_nothing_is_drawn() -> None:
    method = make(epochs=3)
    view = method.open(method.broadcast(method.start(), 0), 0)
    data = digits_problem().client_data(0)
    update = method.train(view, data, Turn(0, 0, {}))
    again = method.train(view, data, Turn(0, 0, {}))
    after = method.exchange.trained(view)
    method.trainer.train(after, data, Turn(0, 0, {}))
    method.map.network.write(after, method.task.flat.weights, key=0)
    mask = unpack_bits(update.payloads["mask"], method.size)
    assert np.array_equal(mask, (method.task.flat.weights != 0).numpy())
    assert np.array_equal(update.payloads["mask"], again.payloads["mask"])
    assert (mask != (view >= 1 << 31)).any()


def test_the_paper_sends_one_bit_per_parameter() -> None:
    """1,184 weights of the small network (64 * 16 + 16 * 10): 148 bytes."""
    method = make(preset="paper")
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, digits_problem().client_data(0), Turn(0, 0, {}))
    (part,) = method.up_parts()
    assert len(part.codec.encode(update.payloads["mask"], method.shared(part, view, 0, 0))) == 148


@pytest.mark.parametrize("values", [{"tau": 1.0}, {"tau": -0.1}, {"straight_through": "theta"}])
def test_values_without_meaning_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        make(**values)
