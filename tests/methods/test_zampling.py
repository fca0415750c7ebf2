"""Zampling: the drift of averaged bits, codecs that carry the same bits, networks against the dense matrix."""

from __future__ import annotations

import tracemalloc
import warnings
from math import comb
from typing import Any

import numpy as np
import pytest
import torch

from subbit.codecs import Counts
from subbit.codecs.packed import count_ones, unpack_bits
from subbit.codecs.sampler import sample_bits
from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError, PayloadError
from subbit.exchange.posterior import counts_of
from subbit.local.stopping import StoppedLocal
from subbit.maps.bound import FULL
from subbit.maps.projection import probabilities
from subbit.methods.method import Turn
from subbit.methods.zampling import Zampling
from subbit.models.sparse_matrix import Projection
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import conv_net, digits_problem, settings

WEIGHTS = 64 * 16 + 16 + 16 * 10 + 10  # Of the network of these tests: 1,210.


def make(module: Any = None, **values: Any) -> Zampling:
    method = Workplace(digits_problem(module), settings(method="zampling", **values)).method("main")
    assert isinstance(method, Zampling)
    return method


def fixed_shares(clients: int, rounds: int) -> list[float]:
    """The oracle: p starts uniform, so the first count is uniform over 0..K; then count ~ Binomial(K, count / K)."""
    counts = np.full(clients + 1, 1 / (clients + 1))
    step = np.array(
        [
            [comb(clients, k) * (j / clients) ** k * (1 - j / clients) ** (clients - k) for k in range(clients + 1)]
            for j in range(clients + 1)
        ]
    )
    shares = []
    for _ in range(rounds):
        shares.append(float(counts[0] + counts[-1]))
        counts = counts @ step
    return shares


def test_without_learning_averaged_bits_drift_to_the_edges_as_wright_and_fisher_say() -> None:
    """K = 10: 2/11 = 18% of the places are fixed after one round, 69% after ten. 1,210 places: sd at most 1.4%."""
    parts = [np.arange(2 * client, 2 * client + 2) for client in range(10)]
    problem = digits_problem(parts=parts)
    chosen = settings(method="zampling", clients=10, compression=1, learning_rate=0.0, clamp=0.0)
    method = Workplace(problem, chosen).method("main")
    state, found = method.start(), []
    for round_number in range(10):
        view = method.open(method.broadcast(state, round_number), round_number)
        accumulator = method.accumulator()
        for client in range(10):
            update = method.train(view, problem.client_data(client), Turn(round_number, client, {}))
            assert count_ones(update.payloads["bits"]) == 0  # Nothing moved: nothing flips.
            method.accumulate(accumulator, view, update.payloads, 2, round_number, client)
        state = method.step(state, accumulator, round_number)
        found.append(float(np.isin(counts_of(state).values, (0, 10)).mean()))
    expected = fixed_shares(10, 10)
    assert expected[0] == pytest.approx(2 / 11)
    assert expected[9] == pytest.approx(0.69, abs=0.01)
    assert found == pytest.approx(expected, abs=0.05)


def test_the_clamp_keeps_every_place_alive_and_zero_is_the_paper() -> None:
    counts = {"counts": np.array([0, 1, 3], dtype=np.uint16).repeat(60)[: WEIGHTS // 8], "total": 3}
    for clamp, edges in ((0.01, (0.01, 0.99)), (0.0, (0.0, 1.0))):
        p = probabilities(make(clamp=clamp).thresholds(counts))
        assert (p.min(), p.max()) == pytest.approx(edges, abs=1e-6)


def test_all_codecs_carry_the_same_bits_and_counts_mean_what_floats_say() -> None:
    """Flips, entropy-coded and packed bits, counts and float32 down: one and the same model, other bytes."""
    forms = [("flips", "counts"), ("mask", "counts"), ("packed", "counts"), ("packed", "dense")]
    summaries = [
        run_job(digits_problem(), settings(method="zampling", codec=codec, down_codec=down, rounds=3)).summary
        for codec, down in forms
    ]
    assert len({summary["model_sha256"] for summary in summaries}) == 1
    places = WEIGHTS // 8
    packed = HEADER_BYTES + (places + 7) // 8
    assert summaries[2]["uplink_bytes"] == summaries[3]["uplink_bytes"] == 9 * packed
    assert summaries[3]["downlink_bytes"] == 9 * (HEADER_BYTES + 4 * places)
    assert summaries[0]["downlink_bytes"] < summaries[3]["downlink_bytes"] / 4


@pytest.mark.parametrize("codec", ["flips", "mask"])
def test_the_server_counts_exactly_the_bits_that_the_client_drew(codec: str) -> None:
    method, data = make(codec=codec), digits_problem().client_data(1)
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, data, Turn(0, 1, {}))
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, update.payloads, len(data), 0, 1)
    local = make(codec="dense")
    real = local.open(local.broadcast(local.start(), 0), 0)
    exact = local.train(real, data, Turn(0, 1, {})).payloads["bits"]
    thresholds = (exact.astype(np.float64) * (FULL - 1)).astype(np.uint32)
    drawn = unpack_bits(sample_bits(thresholds, method.parameters.up.reference_key(method.task, 0, 1)), method.map.size)
    # A threshold rebuilt from float32 may differ by 2^-24 of the range, which hits no uniform of these 151.
    assert np.array_equal(accumulator.counts, drawn)


def test_networks_are_products_with_the_dense_matrix() -> None:
    method = make(compression=4)
    state = {"counts": np.arange(method.map.size, dtype=np.uint16) % 4, "total": 3}
    p = probabilities(method.thresholds(state))
    matrix, weights = method.map.projection.dense(), method.task.flat.weights
    method.write_network(state, "expected", 0)
    assert weights.numpy() == pytest.approx(matrix @ p, abs=1e-5)
    method.write_network(state, "thresholded", 0)
    assert weights.numpy() == pytest.approx(matrix @ (p >= 0.5).astype(np.float32), abs=1e-5)
    method.write_network(state, "sampled", 1)
    drawn = weights.clone()
    method.write_network(state, "sampled", 2)
    assert not torch.equal(drawn, weights)


def test_one_client_with_dense_probabilities_is_local_training() -> None:
    """p stays real (a mean of one client's bits would be 0 or 1), and the server holds exactly what was learnt."""
    problem = digits_problem(parts=[np.arange(240)])
    chosen = settings(method="zampling", clients=1, codec="dense", epochs=2)
    method = Workplace(problem, chosen).method("main")
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, problem.client_data(0), Turn(0, 0, {}))
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, update.payloads, 240, 0, 0)
    state = method.step(method.start(), accumulator, 0)
    p = state[method.map.vector]
    assert np.array_equal(p, update.payloads["bits"])
    assert ((p > 0) & (p < 1)).mean() > 0.3


def test_a_client_that_sends_no_probability_is_refused() -> None:
    method = make(codec="dense")
    view = method.open(method.broadcast(method.start(), 0), 0)
    for value in (0.0, 1.0):
        method.examine(view, {"bits": np.full(method.map.size, value, np.float32)}, 1, 0)
    for value in (1e30, -7.0, -1e-6, 1.001, float("nan")):
        with pytest.raises(PayloadError):
            method.examine(view, {"bits": np.full(method.map.size, value, np.float32)}, 1, 0)


def test_the_paper_gate_holds_places_at_the_edges_and_the_inward_one_lets_them_return() -> None:
    data = digits_problem().client_data(0)
    for gate, comes_back in (("strict", False), ("inward", True)):
        method = make(gate=gate, codec="dense", epochs=3)
        start = (np.arange(method.map.size) % 2).astype(np.float32)
        view = method.open({method.map.vector: start}, 0)
        update = method.train(view, data, Turn(0, 0, {}))
        assert update.observations["fixed"] == 1.0
        assert bool((update.payloads["bits"] != start).any()) == comes_back


def test_around_pretrained_weights_the_first_network_is_the_pretrained_one() -> None:
    """p = 1/2 everywhere: w0 + Q (p - 1/2) = w0. A draw lies off it by spread * sqrt(6 / (4 fan_in))."""
    method = make(around="initial", spread=0.1)
    initial, weights = method.task.flat.initial, method.task.flat.weights
    method.write_network(method.start(), "expected", 0)
    assert weights.numpy() == pytest.approx(initial.numpy(), abs=1e-6)
    method.write_network(method.start(), "sampled", 0)
    off = (weights - initial)[: 64 * 16]
    assert float(off.std()) == pytest.approx(0.1 * (6 / (4 * 64)) ** 0.5, rel=0.2)


def test_normalisation_gains_are_not_made_random_around_zero() -> None:
    with pytest.raises(ConfigError, match=r"around=zero: the gains .* 2\.weight would become random"):
        make(conv_net(), select="all")
    make(conv_net(), select="all", around="initial")
    assert all(not name.startswith("2.") for name in make(conv_net(), select="auto").task.flat.template.names)


def test_the_number_of_probabilities_is_rounded_down_and_the_degree_is_at_most_that() -> None:
    """floor(1,210 / 32) = 37; floor(1,210 / 200) = 6, fewer than the 10 columns that a row should have."""
    assert make(compression=32).map.size == 37
    with pytest.warns(UserWarning, match="degree=10: Q has 6 columns"):
        assert make(compression=200).map.projection.degree == 6
    with pytest.raises(ConfigError, match="1210 weights leave nothing to train"):
        make(compression=2000)


def test_kaiming_of_the_expected_and_of_the_drawn_network() -> None:
    """Var(Q p) = q_variance E[p^2] / fan_in = 6/3 = 2, Var(Q z) = q_variance E[z^2] / fan_in = 4/2 = 2, for uniform p.

    1,024 weights of fan-in 64 that share columns: the estimate is good to some 15%.
    """
    for network, q_variance in (("expected", 6.0), ("sampled", 4.0)):
        method = make(compression=1, q_variance=q_variance)
        method.write_network(method.start(), network, 3)
        assert float(method.task.flat.weights[: 64 * 16].var()) * 64 == pytest.approx(2.0, rel=0.15)


def test_initial_probabilities_follow_the_configured_law() -> None:
    spread = {init: float(make(p_init=init).map.initial_thresholds().std() / FULL) for init in ("uniform", "half", 0.1)}
    assert spread["half"] == 0
    assert spread["uniform"] == pytest.approx(12**-0.5, abs=0.04)
    assert spread[0.1] == pytest.approx((4 * 1.2) ** -0.5, abs=0.04)


def test_a_turn_ends_when_the_held_out_loss_is_no_longer_better() -> None:
    """Without learning the loss of the continuous network is the same in every epoch: 1 better, 2 in vain, stop."""
    method = make(training="continuous", learning_rate=0.0, patience=2, epochs=50)
    view = method.open(method.broadcast(method.start(), 0), 0)
    assert method.train(view, digits_problem().client_data(0), Turn(0, 0, {})).observations["epochs"] == 3


def test_what_is_held_out_is_a_fixed_share_that_is_not_trained_on() -> None:
    data = digits_problem().client_data(0)
    with_patience = StoppedLocal(patience=1, holdout=0.25)
    trained_on, held_out = with_patience.split(data, 1)
    assert (len(trained_on), len(held_out)) == (60, 20)
    everything = {row.numpy().tobytes() for row in data.inputs}
    parts = [{row.numpy().tobytes() for row in part.inputs} for part in (trained_on, held_out)]
    assert parts[0] | parts[1] == everything
    assert torch.equal(with_patience.split(data, 1)[1].inputs, held_out.inputs)
    assert len(StoppedLocal(holdout=0.25).split(data, 1)[1]) == 0


def test_empty_counts_are_the_configured_start_and_cost_nearly_nothing() -> None:
    method = make()
    payload = method.broadcast(method.start(), 0)[method.map.vector]
    assert isinstance(payload, Counts)
    (part,) = method.down_parts()
    assert len(part.codec.encode(payload, method.shared(part, None, 0, 0))) < 16
    assert np.array_equal(method.open({part.name: payload}, 0), method.map.initial_thresholds())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("compression=0.5", "from 1 up"),
        ("degree=0", "at least 1"),
        ("clamp=0.5", "not including, 0.5"),
        ("p_init=0.001", "0.01 to 100"),
        ("patience=0", "at least 1"),
        ("holdout=1", "not including, 1"),
        ("spread=0", "above 0"),
        ("q_variance=nan", "above 0"),
    ],
)
def test_values_out_of_range_are_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({"method": "zampling"}, [word])


def test_real_probabilities_do_not_go_down_as_counts() -> None:
    """A mean of real numbers is no count: where p itself goes up, it goes down in float32."""
    (part,) = make(codec="dense").down_parts()
    assert part.codec.name == "dense"


@pytest.mark.parametrize("compression", [1, 32, 1024])
def test_any_compression_trains_and_goes_both_ways(compression: int) -> None:
    """1,210 weights of one probability each, of 32, and all of one alone: then Q has one column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # That the degree is at most the number of columns.
        summary = run_job(digits_problem(), settings(method="zampling", compression=compression)).summary
    assert summary["failed_clients"] == 0
    assert summary["uplink_bytes"] <= 6 * (HEADER_BYTES + WEIGHTS // compression // 8 + 32)


@pytest.mark.parametrize("values", [{"model": "conv4"}, {"model": "subbit/vit-micro", "head": "kaiming"}])
def test_networks_of_the_library(values: dict[str, Any]) -> None:
    """Random ones around zero, biases included; pre-trained ones around their weights, in their last blocks."""
    chosen = settings(method="zampling", rounds=1, compression=32, limit=24, test_limit=8, **values)
    assert run_job(build_problem(chosen.run), chosen).summary["failed_clients"] == 0


@pytest.mark.parametrize(("degree", "most"), [(10, 32e6), (256, 16e6)])
def test_a_wide_matrix_takes_no_memory(degree: int, most: float) -> None:
    """MNISTFC, 266,610 weights: six bytes for each of d = 10 entries of a row are 16 MB, and kept; for d = 256 they
    would be 410 MB, as a dense matrix 71 GB at m/n = 1, and are drawn anew in blocks.
    """
    scales = np.ones(266_610, dtype=np.float32)
    values, out = np.zeros(8_331, dtype=np.float32), np.empty_like(scales)
    values[0] = 1.0
    tracemalloc.start()
    projection = Projection(scales, len(values), degree, key=1)
    projection.multiply(values, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most
    # One column has degree / columns of all entries; their number has a standard deviation of its square root.
    expected = degree * len(scales) / len(values)
    assert np.count_nonzero(out) == pytest.approx(expected, abs=5 * expected**0.5)
