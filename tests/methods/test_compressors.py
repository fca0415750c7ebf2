"""Gradient compressors as methods: each is FedAvg through one codec, and top-k loses nothing for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from subbit.core.errors import ConfigError
from subbit.methods.method import Turn
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings

OPTIONS: dict[str, dict[str, Any]] = {
    "topk": {"fraction": 0.05},
    "eden": {"bits": 0.7},
    "drive": {},
    "qsgd": {"levels": 16},
}


@pytest.mark.parametrize("method", OPTIONS)
def test_it_is_fedavg_through_that_codec(method: str) -> None:
    options = {**OPTIONS[method], "rounds": 3, "participation": 0.67}
    named = run_job(digits_problem(), settings(method=method, **options)).summary
    fedavg = run_job(digits_problem(), settings(method="fedavg", codec=method, **options)).summary
    assert named["model_sha256"] == fedavg["model_sha256"]
    assert named["uplink_bytes"] == fedavg["uplink_bytes"]
    assert named["codecs"]["up"] == [method]


@pytest.mark.parametrize("method", OPTIONS)
def test_the_codec_is_not_a_choice(method: str) -> None:
    with pytest.raises(ConfigError, match="codec='dense'"):
        settings(method=method, codec="dense")


def test_what_was_sent_and_what_is_kept_add_up_to_all_changes() -> None:
    """v_t = change_t + r_t and r_{t+1} = v_t - sent_t, r_0 = 0: the sum over turns telescopes to
    sum sent + r_last = sum change. Changes are those of plain FedAvg, since the residual is not part of training.
    Between the turns of a client rounds pass in which it is not asked: its residual waits.
    """
    problem = digits_problem()
    topk = Workplace(problem, settings(method="topk")).method("main")
    fedavg = Workplace(problem, settings(method="fedavg")).method("main")
    part, view = topk.up_parts()[0], topk.open(topk.broadcast(topk.start(), 0), 0)
    memory: dict[str, Any] = {}
    sent, changes = np.zeros(topk.size), np.zeros(topk.size)
    for round_number in (0, 1, 4, 7):
        update = topk.train(view, problem.client_data(0), Turn(round_number, 0, memory))
        known = topk.shared(part, view, round_number, 0)
        sent += part.codec.decode(part.codec.encode(update.payloads["weights"], known), known)
        changes += fedavg.train(view, problem.client_data(0), Turn(round_number, 0, {})).payloads["weights"]
    assert np.abs(memory["residual"]).max() > 1e-4
    assert np.allclose(sent + memory["residual"], changes, atol=1e-6)


def test_a_newcomer_has_no_residual() -> None:
    """The first upload of top-k is the change itself."""
    problem = digits_problem()
    first = {}
    for method in ("topk", "fedavg"):
        made = Workplace(problem, settings(method=method)).method("main")
        view = made.open(made.broadcast(made.start(), 0), 0)
        first[method] = made.train(view, problem.client_data(1), Turn(5, 1, {})).payloads["weights"]
    assert np.array_equal(first["topk"], first["fedavg"])


def test_places_are_charged() -> None:
    """A tenth of the values in float32 is 3.2 bits per parameter, and no code can name the places in less than
    log2 C(d, d/10) = 0.469 d bits: together at least 3.66; 32-bit indices would cost 6.4."""
    summary = run_job(digits_problem(), settings(method="topk")).summary
    assert 3.66 < summary["uplink_bpp"] < 4.4
