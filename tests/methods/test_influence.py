"""SECURITY.md on what one client can do to a mask: a law for every method that counts bits, whatever the client sends.

`subbit`, whose clients send steps and not bits, has its own in `test_subbit.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from subbit.aggregate.robust import dropped_per_end
from subbit.codecs import Kind
from subbit.codecs.packed import pack_bits
from subbit.exchange.posterior import counts_of
from subbit.methods.method import Method, State
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp
from tests.problems import settings as job

Read = Callable[[Any, State], NDArray[np.float64]]
ROUNDING = 1e-6  # Thresholds are multiples of 2^-32, probabilities that travel as such are float32.


def probability(method: Any, state: State) -> NDArray[np.float64]:
    return np.asarray(method.exchange.thresholds(counts_of(state)), dtype=np.float64) / 2**32


def zampling_probability(method: Any, state: State) -> NDArray[np.float64]:
    return np.asarray(method.thresholds(state), dtype=np.float64) / 2**32


def theta(method: Any, state: State) -> NDArray[np.float64]:
    return np.asarray(state["theta"])


def mean_sign(method: Any, state: State) -> NDArray[np.float64]:
    counts = counts_of(state)
    return 2 * counts.values / counts.total - 1


CASES: list[tuple[str, dict[str, Any], Read, float]] = [
    *((name, {}, probability, 1.0) for name in ("fedpm", "klms", "deepreduce", "threshold-mask", "deltamask")),
    ("fedpm", {"estimator": "mean"}, probability, 1.0),
    ("fedpm", {"trim": 0.2}, probability, 1.0),
    ("zampling", {}, zampling_probability, 1.0),
    ("zampling", {"codec": "dense"}, zampling_probability, 1.0),
    ("controlled-flips", {}, theta, 1.0),
    ("controlled-flips", {"aggregator": "trimmed", "trim": 0.2}, theta, 1.0),
    ("controlled-flips", {"server_rate": 3.0}, theta, 3.0),
    ("hidenseek", {}, mean_sign, 2.0),
    ("bnn", {}, mean_sign, 2.0),
]


def drawn(method: Method[Any], generator: np.random.Generator) -> dict[str, Any]:
    """What a client may say: any bits, any probabilities."""
    payloads: dict[str, Any] = {}
    for part in method.up_parts():
        bits = generator.random(part.size) < generator.random()
        payloads[part.name] = pack_bits(bits) if part.codec.kind is Kind.BITS else bits.astype(np.float32)
    return payloads


@pytest.mark.parametrize(
    ("name", "options", "read", "most"), CASES, ids=lambda value: getattr(value, "__name__", str(value))
)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), answers=st.integers(1, 12))
def test_one_client_moves_a_probability_by_one_over_the_number_of_answers(
    name: str, options: dict[str, Any], read: Read, most: float, seed: int, answers: int
) -> None:
    """`most` / K, or `most` / (K - 2 t) where t answers are dropped at each end."""
    method: Any = Workplace(digits_problem(mlp(4)), job(method=name, **options)).method("main")
    generator = np.random.default_rng(seed)
    first = method.changes.first() if name == "controlled-flips" else method.broadcast(method.start(), 0)
    view = method.open(first, 0)
    honest = [drawn(method, generator) for _ in range(answers - 1)]
    found = []
    for _ in range(2):  # Two things that the last one may say, whatever the others say.
        accumulator = method.accumulator()
        for client, payloads in enumerate([*honest, drawn(method, generator)]):
            method.accumulate(accumulator, view, payloads, 1, 0, client)
        found.append(read(method, method.step(method.start(), accumulator, 0)))
    trim = options.get("trim", 0.0)
    assert np.abs(found[0] - found[1]).max() <= most / (answers - 2 * dropped_per_end(answers, trim)) + ROUNDING
