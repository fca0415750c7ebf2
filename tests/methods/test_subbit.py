"""The flagship against numbers derived by hand: what is sent, what waits, what the budget buys."""

from __future__ import annotations

import numpy as np
import pytest

from subbit.codecs import Shared
from subbit.errors import ConfigError
from subbit.methods.base import Turn
from subbit.methods.subbit import Subbit, ternary
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, mlp, settings


def made(**values: object) -> Subbit:
    method = Workplace(digits_problem(mlp(64)), settings(method="subbit", **values)).method("main")
    assert isinstance(method, Subbit)
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
    method = made()
    assert method.parameters.largest_level == 40
    levels = method._nearest_levels(np.array([0.0, 0.3, -7.0, 7.0]))
    assert levels.tolist() == [20, 21, 0, 40]
    assert method.scores_of(levels).tolist() == [0.0, 0.25, -5.0, 5.0]


def test_a_place_stays_inside_the_dead_zone_and_moves_outside_it() -> None:
    """Clients hold 0 everywhere. With a dead zone of 0.3 a score of 0.2 is not sent although it rounds to 0.25, and
    one of -0.3 is, as -0.25.
    """
    method = made(deadzone=0.3)
    held = {"levels": np.full(method.size, 20, np.uint16)}
    scores = np.zeros(method.size, np.float32)
    scores[:2] = 0.2, -0.3
    sent = method.change({"scores": scores}, held, 0)["levels"]
    assert sent.values[:3].tolist() == [20, 19, 20]


def test_importance_by_hand() -> None:
    """theta (1 - theta) change^2: at score 0 a change of 1 weighs 0.25, at score 5 one of 5 weighs 0.0066 * 25 = 0.166,
    one of 10 weighs 0.66. By magnitude the order is another.
    """
    before = np.array([0.0, 5.0, 5.0, 0.0], np.float32)
    change = np.array([1.0, -5.0, -10.0, 0.0], np.float32)
    assert made()._most_important_first(change, before, turn()).tolist() == [2, 0, 1]
    assert made(order="magnitude")._most_important_first(change, before, turn()).tolist() == [2, 1, 0]
    assert sorted(made(order="random")._most_important_first(change, before, turn()).tolist()) == [0, 1, 2]


def test_what_is_not_sent_waits_with_the_client() -> None:
    """Sent plus residual is the whole change: nothing is lost between two turns."""
    method, memory = made(learning_rate=0.3), dict[str, np.ndarray]()
    data = digits_problem().client_data(0)
    view = method.open(method.first(), 0)
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
    sent = method.train(method.open(method.first(), 0), data, turn()).payloads["changes"]
    part = method.up_parts()[0]
    used = 8 * (HEADER_BYTES + len(part.codec.encode(sent, Shared(method.size))))
    assert 0.98 * bits <= used <= bits


def test_a_budget_goes_where_the_divergence_is_largest() -> None:
    method = made(bits_per_round=4000)
    view = method.open(method.first(), 0)
    before = method.scores_of(view)
    memory: dict[str, np.ndarray] = {}
    sent = method.train(view, digits_problem().client_data(0), turn(0, memory)).payloads["changes"]
    change = sent + memory["residual"]
    theta = 1 / (1 + np.exp(-before.astype(np.float64)))
    importance = theta * (1 - theta) * change.astype(np.float64) ** 2
    chosen = sent != 0
    assert importance[chosen].min() >= importance[~chosen].max() * (1 - 1e-5)


def test_a_budget_that_holds_no_message_is_refused() -> None:
    with pytest.raises(ConfigError, match="bits_per_round=100: needs at least"):
        settings(method="subbit", bits_per_round=100)


def test_learning_rate_zero_sends_headers_and_moves_nothing() -> None:
    result = run_job(digits_problem(), settings(method="subbit", learning_rate=0.0)).summary
    assert result["uplink_bytes"] == 6 * HEADER_BYTES
    again = run_job(digits_problem(), settings(method="subbit", learning_rate=0.0, rounds=4)).summary
    assert again["accuracy_expected"] == result["accuracy_expected"]


def test_one_client_moves_a_score_by_a_bounded_step() -> None:
    """A liar sends 1e30; of two clients it counts half, at most twice the limit of 5, times the rate: 0.5 * 10 * 2."""
    method = made(score_limit=5.0)
    state = {"scores": np.full(method.size, -5.0, np.float32)}
    accumulator = method.accumulator()
    lie = np.zeros(method.size, np.float32)
    lie[0] = 1e30
    for payload in (lie, np.zeros(method.size, np.float32)):
        method.accumulate(accumulator, method.open(method.first(), 0), {"changes": payload}, 1, 0, 0)
    after = np.asarray(method.step(state, accumulator, 0)["scores"])
    assert after[0] == 5.0
    assert (after[1:] == -5.0).all()
