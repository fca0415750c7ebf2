"""Values that take turns: who moves when, what is sent of it, and that nothing else depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from subbit.codecs.eden import Eden
from subbit.core.errors import ConfigError
from subbit.maps.taking_turns import Rotation
from subbit.methods.subbit import Subbit
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, mlp, settings

PARTS = [np.arange(start, start + 40) for start in range(0, 160, 40)]
KEYS: dict[str, Any] = {"method": "subbit", "clients": 4, "rotate": True, "dimensions": 300, "head": "lda"}


def method_of(**values: Any) -> Subbit:
    method = Workplace(digits_problem(mlp(64), PARTS), settings(**KEYS, **values)).method("main")
    assert isinstance(method, Subbit)
    return method


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 9)
)
def test_the_strongest_move_and_each_turn_takes_an_octave(
    strengths: list[int], at_once: int, always: int, key: int
) -> None:
    pool = len(strengths)
    rotation = Rotation(np.array(strengths), min(at_once, pool), always, key)
    left = list(strengths)
    for number in range(10):
        where = rotation.moving(number).tolist()
        assert where == sorted({*where})
        assert where[len(where) - always :] == list(range(pool, pool + always))
        own = where[: len(where) - always]
        assert len(where) == rotation.moves
        assert len(own) == rotation.at_once
        assert min(left[each] for each in own) >= max([left[each] for each in range(pool) if each not in own] or [-999])
        for each in own:
            left[each] -= 8
    again = Rotation(np.array(strengths), min(at_once, pool), always, key)
    assert again.moving(7).tolist() == rotation.moving(7).tolist(), "in whatever order rounds are asked for"


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.integers(0, 9))
def test_of_equals_every_one_moves_before_one_moves_again(pool: int, at_once: int, always: int, key: int) -> None:
    rotation = Rotation(np.full(pool, 3), min(at_once, pool), always, key)
    moved = np.zeros(pool + always, dtype=int)
    for number in range(2 * pool):
        where = rotation.moving(number)
        assert len(where) == rotation.moves == len({*where.tolist()})
        assert (np.diff(where) > 0).all()
        moved[where] += 1
        assert np.ptp(moved[:pool]) <= 1
    assert (moved[pool:] == 2 * pool).all()


def test_what_changes_the_outputs_most_moves_first() -> None:
    """A layer of rank one, next to one that answers a thousandth: what moves first is the single value of the former,
    and then what is left of its row."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8, bias=False), nn.Linear(8, 6, bias=False), nn.Linear(6, 10))
    with torch.no_grad():
        module[1].weight.copy_(100 * torch.outer(torch.ones(8), torch.ones(64)))  # type: ignore[operator, union-attr]
        module[2].weight.mul_(1e-3)  # type: ignore[operator, union-attr]
    keys = KEYS | {"dimensions": 1, "head": "keep"}
    method = Workplace(digits_problem(module, PARTS), settings(**keys)).method("main")
    rotation = method.map._rotation  # type: ignore[attr-defined]
    assert rotation.moving(0)[0] == 0
    assert rotation.strengths[0] == 8 * round(4 * np.log2(100 * np.sqrt(8 * 64))) / 4 * 1.5


def test_other_turns_are_another_vector_on_the_wire() -> None:
    """So that a client whose layers respond otherwise is told, instead of moving other values than those it is sent."""
    one, other = mlp(64), mlp(64)
    with torch.no_grad():
        next(other.parameters())[:, 0] *= 40
    names = {
        Workplace(digits_problem(each, PARTS), settings(**KEYS)).method("main").map.vector  # type: ignore[attr-defined]
        for each in (one, one, other)
    }
    assert len(names) == 2


def test_only_what_moves_is_sent_and_changed() -> None:
    method = method_of()
    name, moves = method.exchange.name, method.map.moves  # type: ignore[attr-defined]
    head = min(1024, 64 * 10 + 10)
    assert moves == 300 + head < method.map.size
    state = method.start()
    mean = np.arange(1.0, moves + 1)
    after = method.exchange.moved(state, mean, 3)  # type: ignore[attr-defined]
    changed = np.flatnonzero(np.asarray(after[name]) - np.asarray(state[name]))
    assert changed.tolist() == Rotation.moving(method.map._rotation, 3).tolist()  # type: ignore[attr-defined]
    summary = run_job(digits_problem(mlp(64), PARTS), settings(**KEYS, rounds=3)).summary
    frame = Eden(bits=1.0).fixed_length(moves) + HEADER_BYTES
    assert summary["uplink_bytes"] == summary["downlink_bytes"] == 3 * 4 * frame


def test_what_a_broadcast_loses_is_dropped() -> None:
    """The state becomes what receivers hold: clients train on top of that, and it cannot be sent later."""
    method = method_of()
    state, changes, name = method.start(), method.changes, method.map.vector
    assert changes is not None
    state = method.exchange.moved(state, np.linspace(-1, 1, method.map.moves), 0)  # type: ignore[attr-defined]
    before = changes.first()
    held = changes.follow(before, changes.change(state, before, 1), 1)
    assert np.array_equal(held[name], np.asarray(state[name])), "an exact codec loses nothing"
    lossy = {**held, name: 0.5 * held[name]}
    assert np.array_equal(np.asarray(method.after_broadcast(state, lossy)[name]), lossy[name])
    fixed = Workplace(digits_problem(mlp(64), PARTS), settings(**{**KEYS, "rotate": False})).method("main")
    state = fixed.start()
    assert fixed.after_broadcast(state, {fixed.map.vector: np.ones(fixed.map.size, np.float32)}) is state


def test_going_back_concerns_what_moves() -> None:
    method = method_of()
    method.map.network.moving = torch.tensor([1, 3])  # type: ignore[attr-defined]
    assert method.map.toward_start(torch.ones(4), 0.25).tolist() == [1, 0.25, 1, 0.25]


def test_results_do_not_depend_on_workers() -> None:
    keys = {**KEYS, "rounds": 4, "participation": 0.5}
    found = [run_job(digits_problem(mlp(64), PARTS), settings(**keys, workers=each)).summary for each in (1, 2)]
    assert found[0]["model_sha256"] == found[1]["model_sha256"]
    assert found[0]["accuracy"] > 0.5


def test_more_values_than_there_are_need_no_turns() -> None:
    assert method_of().map.moves < method_of().map.size
    everything = Workplace(digits_problem(mlp(64), PARTS), settings(**{**KEYS, "dimensions": 10**6})).method("main")
    assert everything.map.moving(0) is None


def test_a_random_subspace_has_no_turns() -> None:
    with pytest.raises(ConfigError, match="rotate: needs basis=own"):
        settings(**KEYS, basis="random")
    assert settings(**{**KEYS, "rotate": "auto"}, basis="random")


@pytest.mark.parametrize("budget", [300, 500])
def test_a_budget_is_met(budget: int) -> None:
    keys = {key: value for key, value in KEYS.items() if key != "dimensions"}
    keys |= {"bytes": budget, "participation": 0.5, "rounds": 6, "evaluate_every": 6}
    summary = run_job(digits_problem(mlp(64), PARTS), settings(**keys)).summary
    spent = (summary["uplink_bytes"] + summary["downlink_bytes"]) / (summary["participants"] * summary["rounds"])
    assert 0.98 * budget <= spent <= budget
