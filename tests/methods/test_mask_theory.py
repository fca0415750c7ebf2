"""What theory says about masks, measured on the methods themselves: unbiased or not, how far off, how many flips.

Where a client shall have learned given probabilities, `teach` puts them in the place of its training; all the rest,
draws, flips, codecs, counts, is the method's own. Seeds are fixed, and what is random may be off by five standard
deviations, which are derived and not measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from numpy.typing import NDArray

from subbit.codecs import Counts
from subbit.codecs.packed import count_ones, pack_bits, unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.exchange.posterior import BitsExchange, Moved, counts_of
from subbit.maps.bound import FULL, as_thresholds
from subbit.maps.masks import scores_of_thresholds
from subbit.methods.deltamask import bernoulli_divergence
from subbit.methods.method import Turn
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings

SIGMAS = 5
ALL_FLIPS = {"kappa": 1.0, "kappa_schedule": "const"}
Chances = NDArray[np.float64]

data_of = cache(digits_problem().client_data)


def make(method: str, hidden: int = 64, **values: Any) -> Any:
    """74 * hidden places."""
    made = Workplace(digits_problem(mlp(hidden)), settings(method=method, **values)).method("main")
    assert isinstance(made.exchange, BitsExchange)
    return made


def thresholds_of(theta: Chances) -> Thresholds:
    return as_thresholds(np.asarray(theta, dtype=np.float64) * FULL)


def teach(method: Any, learned: Thresholds) -> None:
    def instead(trained: Any, data: Any, turn: Turn) -> dict[str, float]:
        trained.copy_(scores_of_thresholds(learned))
        return {}

    method.trainer.train = instead
    method.map.moved = lambda thresholds, after: learned


def through_the_wire(method: Any, view: Thresholds, round_number: int, client: int) -> dict[str, Any]:
    """What the server reads of the client's upload."""
    payloads = method.train(view, data_of(0), Turn(round_number, client, {})).payloads
    (part,) = method.up_parts()
    shared = method.shared(part, view, round_number, client)
    return {part.name: part.codec.decode(part.codec.encode(payloads[part.name], shared), shared)}


def mean_masks(method: Any, view: Thresholds, clients: int, rounds: int) -> NDArray[np.float64]:
    """The server's M / K of each round, [rounds, places]."""
    means = []
    for round_number in range(rounds):
        accumulator = method.accumulator()
        for client in range(clients):
            payloads = through_the_wire(method, view, round_number, client)
            method.accumulate(accumulator, view, payloads, 1, round_number, client)
        means.append(accumulator.counts / accumulator.total)
    return np.array(means)


def binomial_error(clients: int, chance: float, theta: float) -> tuple[float, float]:
    """Mean and standard deviation of (B / K - theta)^2 for B ~ Bin(K, chance)."""
    ones = range(clients + 1)
    law = [math.comb(clients, count) * chance**count * (1 - chance) ** (clients - count) for count in ones]
    errors = [(count / clients - theta) ** 2 for count in ones]
    mean = sum(weight * error for weight, error in zip(law, errors, strict=True))
    square = sum(weight * error**2 for weight, error in zip(law, errors, strict=True))
    return mean, math.sqrt(square - mean**2)


# The posterior.


@pytest.mark.parametrize("clients", [1, 2, 7, 30])
def test_the_beta_posterior_of_every_possible_count(clients: int) -> None:
    """Prior Beta(1, 1) and M of K ones: Beta(1 + M, 1 + K - M), with the mode M / K and the mean (1 + M) / (2 + K).

    K equal masks are the ends, M = 0 and M = K: the mode is 0 or 1 and stops at the clamp, the mean is 1 / (2 + K) or
    (1 + K) / (2 + K). Exact, in units of 2^-32, rounded down.
    """
    theta = Counts(clients, np.arange(clients + 1, dtype=np.uint16))
    modes = make("fedpm", estimator="mode", clamp=0.01).exchange.thresholds(theta)
    means = make("fedpm", estimator="mean").exchange.thresholds(theta)
    low = Fraction(1, 100)
    for ones in range(clients + 1):
        mode = min(max(Fraction(ones, clients), low), 1 - low)
        assert abs(int(modes[ones]) - mode * 2**32) <= 1
        assert int(means[ones]) == Fraction(1 + ones, 2 + clients) * 2**32 // 1


# How far the server's mean is off.


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_independent_masks_are_off_by_a_quarter_over_the_number_of_clients(coupling: str) -> None:
    """Bern(theta) has variance theta (1 - theta) <= 1/4, the mean of K independent ones a K-th of it: E|theta_hat -
    theta|^2 <= d / 4K, with equality at theta = 1/2. There B ~ Bin(K, 1/2) has the fourth central moment
    K (3 K - 2) / 16, so that Var (B / K - 1/2)^2 = (K - 1) / (8 K^3).
    """
    clients, rounds = 8, 6
    method = make("deltamask", coupling=coupling, **ALL_FLIPS)
    view = thresholds_of(np.full(method.size, 0.5))
    teach(method, view)
    error = ((mean_masks(method, view, clients, rounds) - 0.5) ** 2).sum(axis=1).mean()
    deviation = math.sqrt(method.size * (clients - 1) / (8 * clients**3) / rounds)
    assert abs(error - method.size / (4 * clients)) <= SIGMAS * deviation


def test_clients_that_learned_different_things_stay_below_the_bound() -> None:
    """E (theta_hat - mean theta_k)^2 = sum_k theta_k (1 - theta_k) / K^2, below 1 / 4K. The square error of a place is
    at most 1, so its variance is at most its mean."""
    clients, method = 6, make("deltamask", **ALL_FLIPS)
    generator = np.random.Generator(np.random.Philox(7))
    learned = generator.uniform(0.01, 0.99, (clients, method.size))
    view, accumulator = thresholds_of(np.full(method.size, 0.4)), method.accumulator()
    for client in range(clients):
        teach(method, thresholds_of(learned[client]))
        method.accumulate(accumulator, view, through_the_wire(method, view, 0, client), 1, 0, client)
    error = ((accumulator.counts / clients - learned.mean(axis=0)) ** 2).sum()
    expected = (learned * (1 - learned)).sum() / clients**2
    assert abs(error - expected) <= SIGMAS * math.sqrt(expected)
    assert error < method.size / (4 * clients)


def test_one_uniform_for_all_clients_breaks_the_bound() -> None:
    """With one u per place and round, clients that learned the same draw the same: M / K is 0 or 1, and at theta = 1/2
    every place is off by exactly 1/4, however many clients there are. That is K times the bound."""
    clients = 8
    method = make("deltamask", seed_scope="round", **ALL_FLIPS)
    view = thresholds_of(np.full(method.size, 0.5))
    teach(method, view)
    error = ((mean_masks(method, view, clients, 1) - 0.5) ** 2).sum()
    assert error == method.size / 4 == clients * (method.size / (4 * clients))


def test_false_flips_add_a_bias_that_no_number_of_clients_averages_out() -> None:
    """A filter flips a place that is not in D with probability q = 2^-8, whatever its bit. Under coupling a place
    outside of D has the bit 1 with probability min(theta_k, theta_g), 0 with 1 - max(theta_k, theta_g): the difference
    is b / q = 1 - theta_k - theta_g, and so

        E m' = theta_k + b,    b = q (1 - theta_k - theta_g)
        E (theta_hat - theta_k)^2 = Var(m') / K + b^2,    Var(m') = (theta_k + b) (1 - theta_k - b)

    Where nothing moved, E (m' - theta)^2 = Var(m') + b^2 = theta (1 - theta) + q (1 - 2 theta)^2, which is
    theta (1 - theta) (1 - 4 q) + q, the paper's expression and at most 1/4. But only its variance is divided by K: the
    total is at most d / 4K + q^2 d, and the second term stays. (The paper drops it as a cross term.)

    Bits: 18,944 / 4 places, 8 clients, 5 rounds, theta = 0.02 or 0.98. A mean of these has the deviation 0.00035, so
    that the bias of 0.00375 is more than ten of them: five of slack still leave it five away from zero.
    """
    rate, clients, rounds = 2**-8, 8, 5
    method = make("deltamask", hidden=256, codec="bfuse", bits=8, **ALL_FLIPS)
    pairs = [(0.02, 0.02), (0.98, 0.98), (0.5, 0.6), (0.9, 0.7)]  # theta_g and theta_k, in turn over the places.
    before, after = (np.resize([pair[side] for pair in pairs], method.size) for side in (0, 1))
    view = thresholds_of(before)
    teach(method, thresholds_of(after))
    found = mean_masks(method, view, clients, rounds)
    total, bound = 0.0, 0.25 / clients + rate**2
    for group, (old, new) in enumerate(pairs):
        bias = rate * (1 - new - old)
        places = found[:, group :: len(pairs)]
        error, spread = binomial_error(clients, new + bias, new)
        if old == new:
            paper = new * (1 - new) * (1 - 4 * rate) + rate
            assert error == pytest.approx(paper / clients + bias**2 * (clients - 1) / clients)
        assert error < bound
        deviation = math.sqrt((new + bias) * (1 - new - bias) / clients / places.size)
        assert abs(places.mean() - new - bias) <= SIGMAS * deviation
        if old == new:
            assert abs(places.mean() - new) > SIGMAS * deviation  # Not unbiased: the same test tells.
        assert abs(((places - new) ** 2).mean() - error) <= SIGMAS * spread / math.sqrt(places.size)
        total += ((places - new) ** 2).sum() / rounds
    assert total <= method.size * bound


# How many flips there are.


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_how_many_flips_a_client_has(coupling: str) -> None:
    """Shared u: the bits differ where u lies between the two thresholds, with probability |theta_k - theta_g|, and
    always in the direction of the move. Independent: theta_g (1 - theta_k) + theta_k (1 - theta_g). Either way a sum
    of independent bits of variance p (1 - p)."""
    method = make("deltamask", hidden=256, coupling=coupling, **ALL_FLIPS)
    generator = np.random.Generator(np.random.Philox(3))
    before, after = generator.uniform(0, 1, (2, method.size))
    view, learned = thresholds_of(before), thresholds_of(after)
    teach(method, learned)
    update = method.train(view, data_of(0), Turn(2, 1, {}))
    moved = np.abs(after - before)
    chances = moved if coupling == "shared" else before * (1 - after) + after * (1 - before)
    flips = unpack_bits(update.payloads["flips"], method.size)
    assert abs(flips.sum() - chances.sum()) <= SIGMAS * math.sqrt((chances * (1 - chances)).sum())
    assert update.observations["moved"] == pytest.approx(moved.mean(), abs=1e-9)
    reference = unpack_bits(sample_bits(view, method.parameters.up.reference_key(method.task, 2, 1)), method.size)
    with_the_move = reference[flips] == (after < before)[flips]
    assert with_the_move.all() == (coupling == "shared")


# Nothing is learned.


@pytest.mark.parametrize(
    ("name", "values"), [("fedpm", {}), ("deltamask", {}), ("deltamask", {"coupling": "independent", "kappa": 1.0})]
)
def test_without_learning_theta_is_a_martingale(name: str, values: dict[str, Any]) -> None:
    """Real training at learning rate 0, over 8 rounds that build on each other: given theta, M / K has the mean theta
    and the variance theta (1 - theta) / K. So the sum of all M / K - theta has mean 0 and as its variance the sum of
    those. (The clamp, 1e-6 here, is what theta is given again after it got lost at 0 or 1.)"""
    method = make(name, learning_rate=0.0, clamp=1e-6, **values)
    data = data_of(0).select(np.arange(2))
    state, drift, variance = method.start(), 0.0, 0.0
    for round_number in range(8):
        view = method.open(method.broadcast(state, round_number), round_number)
        accumulator = method.accumulator()
        for client in range(3):
            update = method.train(view, data, Turn(round_number, client, {}))
            method.accumulate(accumulator, view, update.payloads, 2, round_number, client)
        state = method.step(state, accumulator, round_number)
        theta = view / FULL
        drift += (counts_of(state).values / counts_of(state).total - theta).sum()
        variance += (theta * (1 - theta) / 3).sum()
    assert abs(drift) <= SIGMAS * math.sqrt(variance)


@pytest.mark.parametrize("codec", ["flips", "bfuse", "xor", "lane"])
def test_without_learning_a_coupled_client_sends_an_empty_payload(codec: str) -> None:
    method = make("deltamask", learning_rate=0.0, codec=codec)
    (part,) = method.up_parts()
    view = method.map.initial_thresholds()
    for client in range(3):
        update = method.train(view, data_of(client), Turn(0, client, {}))
        assert part.codec.encode(update.payloads["flips"], method.shared(part, view, 0, client)) == b""


# Which flips are kept.


@cache
def with_kappa(kappa: float) -> Any:
    return make("deltamask", kappa=kappa, kappa_schedule="const")


@given(
    scores=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=60),
    kappa=st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0]),
)
@effort(max_examples=60, deadline=None)
def test_the_share_kappa_with_the_largest_divergence_is_kept(scores: list[tuple[int, int]], kappa: float) -> None:
    """ceil(kappa |D|) flips, each with at least the divergence of each that is dropped, and where divergences are equal
    the lower place: many are, with so few different scores."""
    method = with_kappa(kappa)
    start, after, flips = np.zeros(method.size), torch.zeros(method.size), np.zeros(method.size, bool)
    places = 7 * np.arange(len(scores))
    start[places], after[places] = torch.tensor(scores, dtype=torch.float32).T
    flips[places] = True
    thresholds = as_thresholds(FULL / (1 + np.exp(-start)))
    before = method.map.scores(thresholds)
    moved = Moved(method.map, thresholds, np.zeros(method.size, dtype=np.uint32), after)
    chosen = method.parameters.up._most_important(pack_bits(flips), moved, method.task, Turn(0, 0, {}))
    kept = unpack_bits(chosen, method.size)
    assert kept.sum() == math.ceil(Fraction(str(kappa)) * len(scores))
    assert not (kept & ~flips).any()
    divergence = bernoulli_divergence(after.double(), before.double()).numpy()
    ranks = sorted(places.tolist(), key=lambda place: (-divergence[place], place))
    assert np.flatnonzero(kept).tolist() == sorted(ranks[: int(kept.sum())])


# What a Bloom filter makes of a mask.


@pytest.mark.parametrize(
    ("values", "density"), [({"target_bpp": 1.09}, 0.5), ({"target_bpp": 0.5}, 0.1), ({}, 0.5), ({}, 0.05)]
)
def test_the_flip_rate_of_deepreduce_is_the_false_positive_rate_of_its_filter(
    values: dict[str, float], density: float
) -> None:
    """n ones with h hashes in m bits leave a bit empty with probability e^-c, c = h n / m, and a zero of the mask
    passes with p = (1 - e^-c)^h. Of Z zeros Z p pass; the variance Z p (1 - p) grows by what the number of empty bits
    does, m (e^-c - (1 + c) e^-2c) (occupancy), times the square of Z dp / d empty = Z h (1 - e^-c)^(h - 1) / m.

    1.09 bits per parameter and half ones: the ideal filter has p = 2^(-2.18 ln 2) = 0.351, 17.5% of all bits. With two
    whole hashes it is (1 - e^(-1 / 1.09))^2 = 0.361: 18.0% of all bits arrive wrong, all of them as ones.
    """
    method = make("deepreduce", hidden=256, **values)
    view = thresholds_of(np.full(method.size, density))
    teach(method, view)
    (part,) = method.up_parts()
    false, mean, variance, uploads = 0, 0.0, 0.0, 4
    for client in range(uploads):
        meant = method.train(view, data_of(0), Turn(0, client, {})).payloads["mask"]
        read = through_the_wire(method, view, 0, client)["mask"]
        assert count_ones(meant & ~read) == 0
        false += count_ones(read & ~meant)
        ones = count_ones(meant)
        shape = part.codec._shape(ones, method.size)
        bits, hashes, zeros = 8 * shape.byte_count, shape.hash_count, method.size - ones
        load = hashes * ones / bits
        passing = (1 - math.exp(-load)) ** hashes
        slope = zeros * hashes * (1 - math.exp(-load)) ** (hashes - 1) / bits
        occupancy = bits * (math.exp(-load) - (1 + load) * math.exp(-2 * load))
        mean += zeros * passing
        variance += zeros * passing * (1 - passing) + slope**2 * occupancy
    assert abs(false - mean) <= SIGMAS * math.sqrt(variance)
    if values.get("target_bpp") == 1.09:
        assert hashes == 2
        assert false / (uploads * method.size) == pytest.approx(0.180, abs=0.005)
