"""Broadcasts that say what changed: who was not there is sent what it missed, or a snapshot, and holds the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subbit.core.errors import FrameError
from subbit.runtime.client import client_turn
from subbit.runtime.client_memory import NO_MEMORY
from subbit.runtime.downlink import Broadcasts, make_downlink, receive
from subbit.runtime.engines import InProcess
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Order
from subbit.runtime.round import Cohort, ServerState, make_orders, run_round
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger
from tests.problems import digits_problem, mlp, settings

PARTS = [np.arange(start, start + 40) for start in range(0, 240, 40)]


def job(**values: Any) -> Any:
    return settings(method="sparse-masks", clients=6, participation=0.34, rounds=6, **values)


def rounds(count: int) -> tuple[Workplace, ServerState, Ledger]:
    """So many rounds with two of six clients each."""
    workplace = Workplace(digits_problem(mlp(64), PARTS), job())
    method, ledger = workplace.method("main"), Ledger()
    state = ServerState("main", 0, method.start())
    for _ in range(count):
        run_round(method, state, InProcess(workplace, 1), ledger, Cohort(list(range(6)), 1.0))
    return workplace, state, ledger


def test_missed_broadcasts_and_a_snapshot_lead_to_the_same_scores() -> None:
    workplace, state, _ = rounds(3)
    method = workplace.method("main")
    downlink = make_downlink(method, "main", state.method, state.broadcasts, 3)
    newcomer = next(client for client in range(6) if client not in state.broadcasts.seen)
    missed = tuple(state.broadcasts.recent[number] for number in range(3))
    plain = Order("main", 3, newcomer, downlink.frames)
    views, memories = [], []
    _, snapshot = downlink.missing(Broadcasts(state.broadcasts.held, {}, {}), newcomer)
    assert snapshot
    for order in (replace(plain, missed=missed), replace(plain, snapshot=snapshot)):
        memory: dict[str, np.ndarray] = {}
        views.append(receive(method, order, memory))
        memories.append(memory)
    np.testing.assert_array_equal(views[0], views[1])
    np.testing.assert_array_equal(views[0], downlink.view)
    assert memories[0]["held-round"].tolist() == [3]


def test_the_shorter_of_both_is_sent() -> None:
    workplace, state, _ = rounds(3)
    method = workplace.method("main")
    downlink = make_downlink(method, "main", state.method, state.broadcasts, 3)
    for order in make_orders(downlink, state, range(6), None):
        missed = sum(len(frame) for frames in order.missed for frame in frames)
        _, snapshot = downlink.missing(Broadcasts(state.broadcasts.held, {}, {}), order.client)
        assert bool(order.missed) != bool(order.snapshot) or state.broadcasts.seen[order.client] == 2
        if order.missed:
            assert missed <= sum(map(len, snapshot))
            assert len(order.missed) == 2 - state.broadcasts.seen.get(order.client, -1)


def test_what_was_missed_is_counted() -> None:
    """Every client that takes part again pays for the broadcasts in between, in the ledger as on the wire."""
    _, _, ledger = rounds(4)
    down = [entry for entry in ledger.entries if entry.direction == "down"]
    assert len(down) > 4 * 2
    turns = {(entry.round_number, entry.client) for entry in down}
    assert len(turns) == 4 * 2


def test_a_client_that_holds_another_round_says_so() -> None:
    workplace, state, _ = rounds(2)
    method = workplace.method("main")
    downlink = make_downlink(method, "main", state.method, state.broadcasts, 2)
    memory = {"held-round": np.array([0])}
    stale = Order("main", 2, 5, downlink.frames, kept=workplace.memories.write(5, 1, memory, NO_MEMORY))
    with pytest.raises(FrameError, match="holds round 0, the order builds on 1"):
        receive(method, stale, memory)
    reply = client_turn(workplace, stale)
    assert reply.failure is not None
    assert reply.failure.cause == "memory"


def test_a_client_that_lost_its_memory_is_a_newcomer_in_the_next_round() -> None:
    workplace, state, ledger = rounds(2)
    client = next(client for client, number in state.broadcasts.seen.items() if number == 1)
    state.kept.pop(client)  # It was there in the last round, so it is sent the change alone.
    method, engine = workplace.method("main"), InProcess(workplace, 1)
    report = run_round(method, state, engine, ledger, Cohort([client, (client + 1) % 6], 0.1))
    assert report.failures[client].cause == "memory"
    assert client not in state.broadcasts.seen
    report = run_round(method, state, engine, ledger, Cohort([client, (client + 1) % 6], 1.0))
    assert not report.failures


def test_resuming_with_partial_participation_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    whole = job(folder=str(tmp_path), name="whole")
    expected = run_job(digits_problem(mlp(64), PARTS), whole, RunFolder.create(whole, "")).summary
    broken = job(folder=str(tmp_path), name="broken")
    folder = RunFolder.create(broken, "")
    with pytest.raises(KeyboardInterrupt):
        run_job(digits_problem(mlp(64), PARTS), broken, folder, report=_stop_after_three)
    found = run_job(digits_problem(mlp(64), PARTS), broken, folder, resume=True).summary
    assert found["model_sha256"] == expected["model_sha256"]
    assert found["downlink_bytes"] == expected["downlink_bytes"]


def _stop_after_three(progress: Any) -> None:
    if progress.round_number == 2:
        raise KeyboardInterrupt
