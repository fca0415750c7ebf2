"""Methods whose clients keep something between their turns: defined for who comes late, and resumable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subbit.runtime.client import EvaluationOrder, client_turn, evaluation_turn
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Order, Reply
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, settings

STATEFUL: dict[str, dict[str, Any]] = {
    "standalone": {},
    "moon": {},
    "topk": {},
    "lg-fedavg": {"global_layers": 1, "codec": "topk"},
    "bnn": {"latent_policy": "keep_local_if_same_sign"},
    "fedcode": {"down_every": 3},
}


class Interrupted(Exception): ...


@pytest.mark.parametrize("method", STATEFUL)
def test_one_client_of_three_a_round_interrupted_and_resumed(method: str, tmp_path: Path) -> None:
    """Six rounds of one client each: first turns come late, and turns of one client are rounds apart. What clients keep
    must be in the checkpoint, or the resumed run is another one."""
    problem = digits_problem()
    values = {"method": method, "participation": 0.34, "rounds": 6, "folder": str(tmp_path), **STATEFUL[method]}
    chosen = settings(name="straight", **values)
    straight = run_job(problem, chosen, RunFolder.create(chosen, "")).summary
    assert straight["participants"] == 1
    assert straight["failed_clients"] == 0
    other = settings(name="resumed", **values)
    folder = RunFolder.create(other, "")

    def stop(progress: Progress) -> None:
        if progress.round_number == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        run_job(problem, other, folder, report=stop)
    resumed = run_job(problem, other, RunFolder.open(folder.path), resume=True).summary
    for key in ("model_sha256", "accuracy_by_round", "total_bytes"):
        assert resumed[key] == straight[key]


class Strangers:
    """An engine whose every turn happens in a new workplace: as many machines as there are turns."""

    def __init__(self, workplace: Workplace) -> None:
        self.given = (workplace.problem, workplace.settings, workplace.job, workplace.memories)

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        return (client_turn(Workplace(*self.given), order) for order in reversed(orders))

    def candidates(self, clients: list[int]) -> list[int]:
        return clients

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[np.ndarray]:
        return [evaluation_turn(Workplace(*self.given), order) for order in orders]

    def close(self) -> None: ...


@pytest.mark.parametrize("method", [*STATEFUL, "per-fedavg", "fedprox"])
@pytest.mark.parametrize("head", ["keep", "lda"])
def test_what_a_client_needs_is_in_its_order_and_its_memory(method: str, head: str) -> None:
    """Nothing may leak from one turn to the next through the module: running statistics, weights, a fitted head."""
    problem = digits_problem(conv_net())
    values = {"method": method, "head": head, "batchnorm": "average", "participation": 0.67, "rounds": 3}
    chosen = settings(**values, **STATEFUL.get(method, {}))
    here = run_job(problem, chosen).summary
    elsewhere = run_job(problem, chosen, make_engine=Strangers).summary
    assert here["failed_clients"] == 0
    for key in ("model_sha256", "accuracy_before", "accuracy_by_round", "total_bytes"):
        assert elsewhere[key] == here[key]
