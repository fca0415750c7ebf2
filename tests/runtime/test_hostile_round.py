"""Well-formed lies: decodable, addressed rightly, and meant to ruin the run. The liar fails, the round goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subbit.aggregate.mean import WeightedMean
from subbit.core.errors import FrameError, QuorumError, SubbitError
from subbit.runtime import intake
from subbit.runtime.client import client_turn
from subbit.runtime.downlink import Broadcasts, make_downlink, receive
from subbit.runtime.engines import InProcess
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Order, Reply, decode_parts, encode_parts
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up
from tests.problems import digits_problem, settings

Lie = Callable[[dict[str, Any]], dict[str, Any]]
LIAR = 1


class WithOneLiar(InProcess):
    """Client 1 trains as it should and then sends something else, in frames of its own."""

    def __init__(self, workplace: Workplace, lie: Lie, examples: int | None = None) -> None:
        super().__init__(workplace, threads=1)
        self.workplace, self.lie, self.examples = workplace, lie, examples

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in orders:
            reply = client_turn(self.workplace, order)
            yield self.forged(order, reply) if order.client == LIAR and order.purpose == "train" else reply

    def forged(self, order: Order, reply: Reply) -> Reply:
        method, where = self.workplace.method(order.phase), up(order.round_number, order.client)
        view = receive(method, order, self.workplace.memories.read(order.client, order.kept))
        payloads, examples = decode_parts(method, order.phase, where, reply.frames, view)
        told = examples if self.examples is None else self.examples
        frames = encode_parts(method, order.phase, where, self.lie(payloads), view, told)
        return dataclasses.replace(reply, frames=frames)


def every(value: float) -> Lie:
    return lambda payloads: {name: np.full_like(payload, value) for name, payload in payloads.items()}


def first(value: float) -> Lie:
    """One value of every part is changed: a norm hardly shows it."""

    def lie(payloads: dict[str, Any]) -> dict[str, Any]:
        changed = {name: payload.copy() for name, payload in payloads.items()}
        for payload in changed.values():
            payload[0] = value
        return changed

    return lie


JOBS: dict[str, tuple[dict[str, Any], Lie, int | None]] = {
    "fedavg": ({"method": "fedavg"}, every(3.4e38), None),
    "one value": ({"method": "fedavg"}, first(-3.4e38), None),
    "many examples": ({"method": "fedavg"}, every(1.0), 2**31 - 1),
    "eden": ({"method": "fedavg", "codec": "eden"}, every(1e30), None),
    "bnn": ({"method": "bnn"}, every(1e30), None),
    "gradmask": ({"method": "gradmask"}, every(1e30), None),
}


@pytest.mark.parametrize("name", JOBS)
def test_one_huge_value_costs_its_client_the_round_and_a_resumed_run_equals_it(name: str, tmp_path: Path) -> None:
    values, lie, examples = JOBS[name]
    chosen = settings(**values, rounds=3, folder=str(tmp_path), name="attacked")
    problem = digits_problem()

    def engine(workplace: Workplace) -> WithOneLiar:
        return WithOneLiar(workplace, lie, examples)

    whole = run_job(problem, chosen, RunFolder.create(chosen, ""), make_engine=engine).summary
    assert whole["failed_clients"] == 3
    assert set(whole["failures"]) <= {"value", "examples", "step", "payload"}
    broken = dataclasses.replace(chosen, run=dataclasses.replace(chosen.run, name="broken"))
    folder = RunFolder.create(broken, "")

    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        raise StopError

    with pytest.raises(StopError):
        run_job(problem, broken, folder, make_engine=engine, report=stop)
    resumed = run_job(problem, broken, RunFolder.open(folder.path), resume=True, make_engine=engine).summary
    assert resumed["model_sha256"] == whole["model_sha256"]
    assert resumed["failures"] == whole["failures"]


def test_negative_class_counts_cost_one_client_the_head_phase() -> None:
    def negative(payloads: dict[str, Any]) -> dict[str, Any]:
        return {"statistics": -payloads["statistics"]} if "statistics" in payloads else payloads

    chosen = settings(method="deltamask", head="lda", head_codec="float32", select="2.weight", rounds=1)
    summary = run_job(digits_problem(), chosen, make_engine=lambda at: WithOneLiar(at, negative)).summary
    assert summary["failures"] == {"value": 1}


def test_a_structure_that_cannot_be_costs_one_client_its_turn() -> None:
    def nobody(payloads: dict[str, Any]) -> dict[str, Any]:
        return {**payloads, "structure": np.zeros_like(payloads["structure"])}

    chosen = settings(method="fedmask", rounds=1)
    summary = run_job(digits_problem(), chosen, make_engine=lambda at: WithOneLiar(at, nobody)).summary
    assert summary["failed_clients"] == 1


def ruin(state: dict[str, Any]) -> None:
    """Stands for a network whose outputs overflow although every weight is within its bounds."""
    if np.abs(np.asarray(state["weights"])).max() > 5:
        raise SubbitError("useless")


def taken(values: dict[int, float], keep: int = intake.MOST_BYTES) -> tuple[dict[str, Any], dict[int, Any]]:
    """A step of fedavg from clients that each send one value everywhere, all with ten examples."""
    workplace = Workplace(digits_problem(), settings(method="fedavg"))
    method = workplace.method("main")
    state = {name: np.zeros_like(value) for name, value in method.start().items()}
    view = make_downlink(method, "main", state, Broadcasts(), 0).view
    taking = intake.Intake(method, "main", view, 0, ruin)
    for client, value in values.items():
        payloads = {part.name: np.full(part.size, value, dtype=np.float32) for part in method.up_parts()}
        frames = encode_parts(method, "main", up(0, client), payloads, view, examples=10)
        taking.add(client, frames)
    return taking.step(state)


def test_who_ruins_the_state_alone_is_refused_and_the_others_step() -> None:
    """By hand: (1 + 3) / 2 = 2 without the client that sends 100, with whom the mean would be 34.7."""
    state, refused = taken({0: 1.0, 1: 100.0, 2: 3.0})
    assert list(refused) == [1]
    assert refused[1].cause == "step"
    assert np.unique(state["weights"]).tolist() == [2.0]


def test_a_state_that_is_fine_needs_no_examination() -> None:
    """(1 + 10 + 1) / 3 = 4 is below 5, though client 1 alone would be above."""
    state, refused = taken({0: 1.0, 1: 10.0, 2: 1.0})
    assert not refused
    assert np.unique(state["weights"]).tolist() == [4.0]


def test_where_nobody_can_be_blamed_there_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MOST_BYTES", 10)
    state, refused = taken({0: 1.0, 1: 100.0, 2: 3.0})
    assert sorted(refused) == [0, 1, 2]
    assert not np.any(state["weights"])


def test_a_step_that_no_answer_allows_ends_the_run_and_blames_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: WeightedMean) -> Any:
        raise ValueError("mine is broken")

    monkeypatch.setattr(WeightedMean, "mean", broken)
    with pytest.raises(QuorumError, match=r"none of the 3 answers allows a step.*not a client.*mine is broken"):
        run_job(digits_problem(), settings(method="fedavg"))


def test_the_quorum_holds_for_those_who_remain_after_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three ruin the state alone, each with another message: one is fewer than half."""

    def step(self: intake.Intake, state: Any) -> Any:
        return state, {client: intake.Failure("step", f"client {client}") for client in (0, 1)}

    monkeypatch.setattr(intake.Intake, "step", step)
    with pytest.raises(QuorumError, match=r"1 of 3 clients answered, 2 are needed.*step: client 0"):
        run_job(digits_problem(), settings(method="fedavg"))
    assert run_job(digits_problem(), settings(method="fedavg", quorum=0.3)).summary["failures"] == {"step": 4}


def test_a_frame_of_another_run_of_the_same_configuration_is_refused() -> None:
    chosen, frames = settings(method="fedavg"), {}
    for job in ("aa", "bb"):
        workplace = Workplace(digits_problem(), chosen, job)
        method = workplace.method("main")
        downlink = make_downlink(method, "main", method.start(), Broadcasts(), 0)
        frames[job] = client_turn(workplace, Order("main", 0, 0, downlink.frames)).frames
    assert [len(frame) for frame in frames["aa"]] == [len(frame) for frame in frames["bb"]]
    assert all(one[40:] == other[40:] for one, other in zip(*frames.values(), strict=True)), "payloads are the same"
    with pytest.raises(FrameError) as caught:
        decode_parts(method, "main", up(0, 0), frames["aa"], downlink.view)
    assert caught.value.cause == "template"
