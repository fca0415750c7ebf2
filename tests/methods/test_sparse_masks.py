"""sparse-masks against numbers derived by hand: what is sent, what waits, what the budget buys."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.codecs import Shared
from subbit.config.resolve import resolve, write_toml
from subbit.core.errors import ConfigError, PayloadError
from subbit.exchange.important import ImportantUp, ternary
from subbit.methods.method import Turn
from subbit.methods.sparse_masks import SparseMasks
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, mlp, settings

ROOT = Path(__file__).parents[2]


def made(**values: object) -> SparseMasks:
    method = Workplace(digits_problem(mlp(64)), settings(method="sparse-masks", **values)).method("main")
    assert isinstance(method, SparseMasks)
    return method


def turn(round_number: int = 0, memory: dict[str, np.ndarray] | None = None) -> Turn:
    return Turn(round_number, 0, {} if memory is None else memory)


def test_ternary_by_hand() -> None:
    """Places 0 and 2: magnitudes 1 and 3, mean 2, signs + and -."""
    change = np.array([1.0, 5.0, -3.0, 0.0], np.float32)
    assert ternary(change, np.array([0, 2])).tolist() == [2.0, 0.0, -2.0, 0.0]
    assert not ternary(change, np.array([], dtype=np.int64)).any()


def test_the_grid_by_hand() -> None:
    """Limit 5, step 0.25: levels 0 to 40, level 20 is score 0, 0.3 rounds to 0.25, and the ends hold."""
    grid = made().parameters.down
    assert grid.largest == 40
    levels = grid.nearest(np.array([0.0, 0.3, -7.0, 7.0]))
    assert levels.tolist() == [20, 21, 0, 40]
    assert grid.values(levels).tolist() == [0.0, 0.25, -5.0, 5.0]


def test_a_place_stays_inside_the_dead_zone_and_moves_outside_it() -> None:
    """Clients hold 0 everywhere. With a dead zone of 0.3 a score of 0.2 is not sent although it rounds to 0.25, and
    one of -0.3 is, as -0.25.
    """
    method = made(deadzone=0.3)
    held = {"levels": np.full(method.size, 20, np.uint16)}
    scores = np.zeros(method.size, np.float32)
    scores[:2] = 0.2, -0.3
    sent = method.exchange.changes.change({"scores": scores}, held, 0)["levels"]
    assert sent.values[:3].tolist() == [20, 19, 20]


def test_importance_by_hand() -> None:
    """theta (1 - theta) change^2: at score 0 a change of 1 weighs 0.25, at score 5 one of 5 weighs 0.0066 * 25 = 0.166,
    one of 10 weighs 0.66. By magnitude the order is another.
    """
    before = np.array([0.0, 5.0, 5.0, 0.0], np.float32)
    change = np.array([1.0, -5.0, -10.0, 0.0], np.float32)
    up = made().parameters.up
    assert up.ranked(change, before, 0).tolist() == [2, 0, 1]
    assert up.ranked(change, before, 0, 2).tolist() == [2, 0]
    ties = np.tile(np.float32([1, -1, 2, 0]), 4)
    assert up.ranked(ties, np.zeros_like(ties), 0, 6).tolist() == [2, 6, 10, 14, 0, 1]
    assert ImportantUp(order="magnitude").ranked(change, before, 0).tolist() == [2, 1, 0]
    assert sorted(ImportantUp(order="random").ranked(change, before, 0).tolist()) == [0, 1, 2]


def test_what_is_not_sent_waits_with_the_client() -> None:
    """Sent plus residual is the whole change: nothing is lost between two turns."""
    method, memory = made(learning_rate=0.3), dict[str, np.ndarray]()
    data = digits_problem().client_data(0)
    view = method.open(method.exchange.changes.first(), 0)
    first = method.train(view, data, turn(0, memory)).payloads["changes"]
    waiting = memory["residual"].copy()
    alone = made(learning_rate=0.3).train(view, data, turn(1)).payloads["changes"]
    second = method.train(view, data, turn(1, memory)).payloads["changes"]
    assert 0 < np.count_nonzero(first) <= 256
    assert np.abs(waiting).sum() > 0
    assert not np.array_equal(alone, second)
    whole = made(learning_rate=0.3, share=1.0, residuals=False)
    fresh = whole.train(view, data, turn(1)).payloads["changes"]
    # The change of the second turn is what all places would have sent, up to their common magnitude.
    assert np.array_equal(np.sign(second + memory["residual"] - waiting) != 0, fresh != 0)


@pytest.mark.parametrize("bits", [1200, 3000, 7000])
def test_a_budget_is_met_within_two_percent(bits: int) -> None:
    """There are more changes than fit: so what is sent takes at least 98% of the budget, and never more."""
    method = made(bits_per_round=bits)
    data = digits_problem().client_data(0)
    sent = method.train(method.open(method.exchange.changes.first(), 0), data, turn()).payloads["changes"]
    part = method.up_parts()[0]
    used = 8 * (HEADER_BYTES + len(part.codec.encode(sent, Shared(method.size))))
    assert 0.98 * bits <= used <= bits


def test_a_budget_goes_where_the_divergence_is_largest() -> None:
    method = made(bits_per_round=4000)
    view = method.open(method.exchange.changes.first(), 0)
    before = method.parameters.down.values(view)
    memory: dict[str, np.ndarray] = {}
    sent = method.train(view, digits_problem().client_data(0), turn(0, memory)).payloads["changes"]
    change = sent + memory["residual"]
    theta = 1 / (1 + np.exp(-before.astype(np.float64)))
    importance = theta * (1 - theta) * change.astype(np.float64) ** 2
    chosen = sent != 0
    assert importance[chosen].min() >= importance[~chosen].max() * (1 - 1e-5)


def test_a_budget_that_holds_no_message_is_refused() -> None:
    with pytest.raises(ConfigError, match="bits_per_round=100: needs at least"):
        settings(method="sparse-masks", bits_per_round=100)


def test_learning_rate_zero_sends_headers_and_moves_nothing() -> None:
    result = run_job(digits_problem(), settings(method="sparse-masks", learning_rate=0.0)).summary
    assert result["uplink_bytes"] == 6 * HEADER_BYTES
    again = run_job(digits_problem(), settings(method="sparse-masks", learning_rate=0.0, rounds=4)).summary
    assert again["accuracy_expected"] == result["accuracy_expected"]


def accumulated(method: SparseMasks, *payloads: np.ndarray, round_number: int = 0) -> object:
    accumulator, view = method.accumulator(), method.open(method.exchange.changes.first(), 0)
    for client, payload in enumerate(payloads):
        method.accumulate(accumulator, view, {"changes": payload}, 1, round_number, client)
    return accumulator


def at(method: SparseMasks, places: object, value: float) -> np.ndarray:
    vector = np.zeros(method.size, np.float32)
    vector[places] = value
    return vector


def test_one_client_moves_a_score_by_a_bounded_step() -> None:
    """15 is what one turn can do, from -5 held to 10 trained; it counts as the range of scores, 10. Of two clients a
    liar counts half, times the rate: 0.5 * 10 * 2."""
    method = made(score_limit=5.0)
    state = {"scores": np.full(method.size, -5.0, np.float32)}
    after = np.asarray(method.step(state, accumulated(method, at(method, 0, 15.0), at(method, 0, 0)), 0)["scores"])
    assert after[0] == 5.0
    assert (after[1:] == -5.0).all()


@pytest.mark.parametrize("lie", [15.1, 1e30, -1e30, 3.4e38])
def test_a_magnitude_that_nobody_can_have_gathered_is_refused(lie: float) -> None:
    method = made()
    accumulator = accumulated(method, at(method, 1, 0.5))
    before = accumulator.sum.copy()
    with pytest.raises(PayloadError, match="honest clients stay below 15") as refused:
        method.accumulate(accumulator, None, {"changes": at(method, 0, lie)}, 1, 0, 1)
    assert refused.value.cause == "value"
    assert np.array_equal(accumulator.sum, before)
    assert accumulator.weight == 1


def test_what_waits_adds_up_over_turns() -> None:
    """In round 3 a client may have waited for four turns: 60. Without residuals nothing waits."""
    accumulated(made(), at(made(), 0, 59.0), round_number=3)
    with pytest.raises(PayloadError):
        accumulated(made(), at(made(), 0, 59.0), round_number=2)
    with pytest.raises(PayloadError):
        accumulated(made(residuals=False), at(made(), 0, 16.0), round_number=3)


def test_more_places_than_the_share_allows_are_refused() -> None:
    """Of 4736 places 0.0008 are 4, so 256 it is; a tenth are 474."""
    method = made()
    accumulated(method, at(method, slice(256), 1.0))
    with pytest.raises(PayloadError, match="changes of 257 places, at most 256"):
        accumulated(method, at(method, slice(257), 1.0))
    accumulated(made(share=0.1), at(method, slice(474), 1.0))
    with pytest.raises(PayloadError):
        accumulated(made(share=0.1), at(method, slice(475), 1.0))


def test_more_bits_than_the_budget_are_refused() -> None:
    method = made(bits_per_round=3000)
    honest = method.train(
        method.open(method.exchange.changes.first(), 0), digits_problem().client_data(0), turn()
    ).payloads["changes"]
    accumulated(method, honest)
    places = np.random.default_rng(0).permutation(method.size)[: 2 * np.count_nonzero(honest)]
    with pytest.raises(PayloadError, match="do not fit bits_per_round=3000"):
        accumulated(method, at(method, places, 1.0))


@pytest.mark.parametrize("options", [{}, {"bits_per_round": 3000}, {"share": 0.3}, {"order": "random"}])
def test_honest_clients_are_never_refused(options: dict[str, object]) -> None:
    """Also at a rate at which every step throws scores from one end to the other, and residuals pile up."""
    problem = digits_problem(mlp(64))
    for rate in (1.0, 30.0):
        summary = run_job(problem, settings(method="sparse-masks", rounds=5, learning_rate=rate, **options)).summary
        assert summary["failed_clients"] == 0, summary["failures"]


@given(
    st.sampled_from([1, 2, 5, 10, 30]),
    st.floats(0.1, 9.9),
    st.floats(0.25, 8),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.floats(-20, 20),
)
def test_one_client_moves_a_probability_by_a_bounded_step(
    answers: int, rate: float, limit: float, held: float, others: float, lie: float
) -> None:
    """SECURITY.md: by at most tanh(score_limit server_rate / (2 K)), against what the round is without its word.

    sigmoid(s + x) - sigmoid(s) is largest at s = -x/2, where it is tanh(x / 4), and x <= 2 limit rate / K.
    """
    method = made(server_rate=rate, score_limit=limit, step=0.25)
    state = {"scores": np.full(method.size, held * limit, np.float32)}
    honest = [at(method, 0, others * limit)] * (answers - 1)
    lie = float(np.clip(lie, -limit - 10, limit + 10))
    with_lie, without = (
        1 / (1 + np.exp(-float(np.asarray(method.step(state, accumulated(method, *honest, last), 0)["scores"])[0])))
        for last in (at(method, 0, lie), at(method, 0, 0.0))
    )
    assert abs(with_lie - without) <= np.tanh(limit * rate / (2 * answers)) + 1e-6


def test_the_figure_in_the_security_notes() -> None:
    parameters = made().parameters
    figure = math.tanh(parameters.down.score_limit * parameters.aggregate.server_rate / 20)
    assert f"{figure:.2f} for ten and the default keys" in (ROOT / "SECURITY.md").read_text()


def test_the_trimmed_mean_moves_no_place_that_only_liars_name() -> None:
    """Ten clients, two of them liars at trim 0.2. Place 0: liars alone. Place 1: three of the others, whose values are
    1: sorted 0 x 5, 1 x 3, 9 x 2, of which two go at each end: 0 0 0 1 1 1, mean 1/2. Place 2: the liars against all
    others: -9 -9 1 x 8, mean 1. A place that one alone names, honest or not, stays. The median of place 1 is 1/2 (0 0 0
    0 0 1 1 1 9 9: the mean of 0 and 1).
    """
    changes = np.zeros((10, 4))
    changes[:2] = [9, 9, -9, 0]
    changes[2:, 2] = 1
    changes[2:5, 1] = 1
    changes[9, 3] = 5
    expected = {"trimmed": [0, 0.5, 1, 0], "median": [0, 0.5, 1, 0]}
    for aggregator, mean in expected.items():
        trim = {"trim": 0.2} if aggregator == "trimmed" else {}
        method = made(aggregator=aggregator, server_rate=1.0, **trim)
        vectors = [np.concatenate([row, np.zeros(method.size - 4)]).astype(np.float32) for row in changes]
        state = {"scores": np.zeros(method.size, np.float32)}
        after = method.step(state, accumulated(method, *vectors), 0)["scores"]
        assert np.asarray(after)[:4].tolist() == mean


def test_an_aggregator_that_drops_too_much_is_refused() -> None:
    for name in ("sparse-masks", "controlled-flips"):
        with pytest.raises(ConfigError, match=r"trim=0\.5: needs a share"):
            settings(method=name, aggregator="trimmed", trim=0.5)


def test_keys_of_pieces_that_were_not_chosen_are_unknown() -> None:
    for words in ({"trim": 0.2}, {"aggregator": "median", "trim": 0.2}, {"optimizer": "adam", "momentum": 0.5}):
        with pytest.raises(ConfigError, match=f"unknown key '{list(words)[-1]}'"):
            settings(method="sparse-masks", **words)
    with pytest.raises(ConfigError, match="there are: agreement, mean, median, trimmed"):
        settings(method="sparse-masks", aggregator="beta")


def test_options_of_the_grid_need_no_table_but_may_name_it() -> None:
    for words in ({"step": 0.5}, {"down.step": 0.5}, {"down_step": 0.5}, {"down": {"step": 0.5}}):
        assert settings(method="sparse-masks", **words).parameters.down.step == 0.5
    chosen = settings(method="sparse-masks", step=0.5, deadzone=0.3)
    assert resolve(tomllib.loads(write_toml(chosen))) == chosen
