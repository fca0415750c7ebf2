"""Momentum and rate of the server: hand-made steps, resuming, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from subbit.core.errors import ConfigError
from subbit.exchange.vectors import VELOCITY, VectorExchange
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings


def exchange(**words: Any) -> VectorExchange:
    found = Workplace(digits_problem(), settings(method="fedavg", **words)).method("main").exchange
    assert isinstance(found, VectorExchange)
    return found


def after(steps: int, **words: Any) -> float:
    """How far the first weight is from its start after mean changes of one."""
    found = exchange(**words)
    state = found.start()
    first = float(np.asarray(state["weights"])[0])
    for _ in range(steps):
        state = found.moved(state, np.ones(found.map.size), round_number=0)
    return float(np.asarray(state["weights"], dtype=np.float64)[0]) - first


def test_steps_by_hand() -> None:
    assert after(2) == pytest.approx(2)
    assert after(2, server_rate=0.25) == pytest.approx(0.5)
    assert after(3, server_momentum=0.5) == pytest.approx(1 + 1.5 + 1.75)
    assert after(2, server_momentum=0.5, server_rate=0.1) == pytest.approx(0.1 + 0.15)


def test_it_costs_no_byte() -> None:
    words = {"method": "fedavg", "rounds": 2, "codec": "eden", "down_codec": "eden"}
    plain, moving = (run_job(digits_problem(), settings(**words, server_momentum=m)).summary for m in (0.0, 0.7))
    assert plain["total_bytes"] == moving["total_bytes"]
    assert plain["model_sha256"] != moving["model_sha256"]


def test_the_velocity_is_part_of_the_state_only_with_momentum() -> None:
    assert VELOCITY in exchange(server_momentum=0.5).start()
    assert VELOCITY not in exchange().start()


@pytest.mark.parametrize(
    "words",
    [{"server_momentum": 1.0}, {"server_momentum": -0.1}, {"server_rate": 0.0}, {"whole": True, "server_rate": 0.5}],
)
def test_what_cannot_be_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        exchange(**words)
