"""Two of ten clients lie. What is left of the accuracy, by method and by aggregation.

The liars obey every rule of the wire: their frames are well-formed and theirs, only what they say is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from subbit.core.randomness import derive_key, numpy_generator
from subbit.runtime.client import client_turn
from subbit.runtime.engines import InProcess
from subbit.runtime.messages import Order, Reply, decode_parts, encode_parts
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down, up
from tests.problems import digits_problem, mlp, settings

Lie = Callable[[Any, int], Any]
CLIENTS, LIARS = 10, (0, 1)


class WithLiars(InProcess):
    """An engine in which some clients train as they should and then say something else."""

    def __init__(self, workplace: Workplace, lie: Lie) -> None:
        super().__init__(workplace, threads=1)
        self.workplace, self.lie = workplace, lie

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in orders:
            reply = client_turn(self.workplace, order)
            yield self.forged(order, reply) if order.client in LIARS else reply

    def forged(self, order: Order, reply: Reply) -> Reply:
        method, where = self.workplace.method("main"), up(order.round_number, order.client)
        broadcast, _ = decode_parts(method, "main", down(order.round_number), order.frames, None)
        view = method.open(broadcast, order.round_number)
        payloads, examples = decode_parts(method, "main", where, reply.frames, view)
        key = derive_key(0, "lie", order.round_number, order.client)
        lies = {name: self.lie(payload, key) for name, payload in payloads.items()}
        frames = encode_parts(method, "main", where, lies, view, examples)
        return Reply(order.client, frames)


def flipped(mask: np.ndarray, key: int) -> np.ndarray:
    return ~mask


def random(mask: np.ndarray, key: int) -> np.ndarray:
    return numpy_generator(key).integers(0, 256, mask.size, dtype=np.uint8)


def scaled(change: np.ndarray, key: int) -> np.ndarray:
    return change * np.float32(-10)


def accuracy(method: str, lie: Lie | None = None, **values: Any) -> float:
    problem = digits_problem(mlp(64), list(np.array_split(np.arange(600), CLIENTS)), examples=600)
    fixed = {"clients": CLIENTS, "rounds": 6, "epochs": 4, "batch_size": 16, "evaluate_every": 6}
    rate = 0.003 if method == "fedavg" else 0.3
    chosen = settings(method=method, learning_rate=rate, **fixed, **values)
    engine = None if lie is None else lambda workplace: WithLiars(workplace, lie)
    summary = run_job(problem, chosen, make_engine=engine).summary
    assert summary["failed_clients"] == 0, summary["failures"]
    return float(summary["accuracy"])


def recovered(honest: float, attacked: float, robust: float) -> float:
    """Share of what the attack cost that robust aggregation brings back."""
    return (robust - attacked) / (honest - attacked)


def test_two_liars_ruin_a_mean_of_updates_but_not_a_robust_one() -> None:
    """Without liars 0.9; -10 times two updates among ten outweighs the other eight and undoes all learning.

    Trimming and the median leave the liars out; clipping lets them pull, as hard as anybody else.
    """
    honest, attacked = accuracy("fedavg"), accuracy("fedavg", scaled)
    assert honest > 0.8
    assert attacked < 0.3
    for least, robust in (
        (0.8, {"aggregator": "trimmed", "trim": 0.2}),
        (0.8, {"aggregator": "median"}),
        (0.4, {"clip_norm": 0.5}),
    ):
        assert recovered(honest, attacked, accuracy("fedavg", scaled, **robust)) > least, robust


def test_masks_degrade_under_attack_and_trimming_brings_them_back() -> None:
    """A liar moves a probability by at most 1 / K a round: learning goes on (chance is 0.1), though slower."""
    honest = accuracy("fedpm")
    assert honest > 0.7
    for lie, least in ((flipped, 0.2), (random, 0.4)):
        attacked = accuracy("fedpm", lie)
        assert least < attacked < honest
        assert accuracy("fedpm", lie, trim=0.2) > attacked + 0.03
