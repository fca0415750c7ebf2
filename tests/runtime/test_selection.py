"""Clients chosen by their loss: who is chosen, what it costs, who is left out, and that no engine changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from subbit.core.errors import ConfigError, QuorumError
from subbit.methods.method import Turn
from subbit.objectives.classes import Classification
from subbit.runtime.client import EvaluationOrder, client_turn
from subbit.runtime.folder import RunFolder
from subbit.runtime.high_loss import of_highest_loss, pack_loss, share_of
from subbit.runtime.messages import Order, Reply
from subbit.runtime.round import Cohort, RoundReport, ServerState, run_round
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from subbit.wire.ledger import Ledger
from tests.problems import digits_problem, mlp, settings

CLIENTS = 6
PARTS = [np.arange(20 * client, 20 * client + 20) for client in range(CLIENTS)]


@pytest.mark.parametrize(
    ("participation", "clients", "expected"),
    [(1.0, 7, 7), (0.5, 7, 3), (0.5, 5, 2), (0.29, 100, 29), (0.1, 30, 3), (0.19, 5, 1), (0.99, 100, 99)],
)
def test_a_share_of_clients_is_rounded_down(participation: float, clients: int, expected: int) -> None:
    assert share_of(participation, clients) == expected


class Asking:
    """An engine that writes down who is asked what, and may change what they say."""

    def __init__(self, workplace: Workplace, tamper: Callable[[Order, Reply], Reply]) -> None:
        self.workplace, self.tamper = workplace, tamper
        self.asked: list[tuple[str, int]] = []

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.asked += [(order.purpose, order.client) for order in orders]
        return (self.tamper(order, client_turn(self.workplace, order)) for order in reversed(orders))

    def candidates(self, clients: list[int]) -> list[int]:
        return clients

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        raise NotImplementedError

    def close(self) -> None: ...


def chosen_settings(**values: Any) -> Any:
    return settings(
        **{"method": "fedavg", "clients": CLIENTS, "participation": 0.34, "selection": "high-loss", **values}
    )


def one_round(
    tamper: Callable[[Order, Reply], Reply] = lambda order, reply: reply, **values: Any
) -> tuple[Asking, RoundReport, Ledger]:
    workplace = Workplace(digits_problem(parts=PARTS), chosen_settings(**values))
    engine, ledger, method = Asking(workplace, tamper), Ledger(), workplace.method("main")
    state = ServerState("main", 0, method.start())
    report = run_round(method, state, engine, ledger, Cohort(list(range(CLIENTS)), 0.5, workplace.drawn))
    return engine, report, ledger


@given(st.dictionaries(st.integers(0, 50), st.sampled_from([0.5, 1.0, 2.0]), max_size=20), st.integers(0, 25))
def test_nobody_left_out_has_a_higher_loss_or_the_same_and_a_lower_number(losses: dict[int, float], count: int) -> None:
    chosen = of_highest_loss(losses, count)
    assert list(chosen) == sorted(chosen)
    assert len(chosen) == min(count, len(losses))
    for inside in chosen:
        for outside in set(losses) - set(chosen):
            assert (losses[inside], -inside) > (losses[outside], -outside)


def test_those_of_highest_loss_on_the_broadcast_network_train() -> None:
    """All six are asked, two train: the two whose data the untrained network predicts worst."""
    problem, module = digits_problem(parts=PARTS), mlp()
    losses = {}
    for client in range(CLIENTS):
        data = problem.client_data(client)
        losses[client] = nn.functional.cross_entropy(module(data.inputs), data.labels).item()
    expected = tuple(sorted(sorted(losses, key=lambda client: -losses[client])[:2]))
    engine, report, _ = one_round(drawn=6)
    assert report.participants == report.answered == expected
    assert engine.asked == [("loss", client) for client in range(CLIENTS)] + [("train", client) for client in expected]


def test_twice_as_many_as_take_part_are_asked_unless_drawn_says_otherwise() -> None:
    engine, report, _ = one_round()
    assert [purpose for purpose, _ in engine.asked] == ["loss"] * 4 + ["train"] * 2
    assert len(report.participants) == 2


def test_questions_and_answers_are_in_the_ledger() -> None:
    """Down: the broadcast to four who are asked and once more to two who train. Up: four losses and two changes."""
    _, _, ledger = one_round()
    whole = 4 * 1210 + HEADER_BYTES
    assert ledger.totals.downlink_bytes == (4 + 2) * whole
    assert ledger.totals.uplink_bytes == 4 * (4 + HEADER_BYTES) + 2 * whole
    assert ledger.totals.uploads == 2
    assert ledger.uplink_bpp(1210) == 8 * ledger.totals.uplink_bytes / (2 * 1210)
    assert ledger.totals.downloads == 2
    assert ledger.downlink_bpp(1210) == 8 * 6 * whole / (2 * 1210)


def test_who_fails_to_tell_a_loss_is_not_chosen_and_is_counted() -> None:
    _, free, _ = one_round(drawn=6)
    first = free.participants[0]

    def silent(order: Order, reply: Reply) -> Reply:
        return Reply(order.client, (b"rubbish",)) if (order.purpose, order.client) == ("loss", first) else reply

    _, report, _ = one_round(silent, drawn=6)
    assert report.failures[first].cause == "not-a-frame"
    assert first not in report.participants
    assert len(report.answered) == 2


@pytest.mark.parametrize("frames", [(), (b"", b"")])
def test_an_answer_without_exactly_one_frame_is_refused(frames: tuple[bytes, ...]) -> None:
    def broken(order: Order, reply: Reply) -> Reply:
        return Reply(order.client, frames) if order.purpose == "loss" and order.client == 0 else reply

    _, report, _ = one_round(broken, drawn=6)
    assert report.failures[0].cause == "length"


def test_a_loss_of_another_client_is_refused() -> None:
    seen: dict[int, Reply] = {}

    def replayed(order: Order, reply: Reply) -> Reply:
        seen.setdefault(order.client, reply)
        return Reply(2, seen[5].frames) if order.purpose == "loss" and order.client == 2 else reply

    _, report, _ = one_round(replayed, drawn=6)
    assert report.failures[2].cause == "client"


def claiming(workplace: Workplace, liar: int, loss: float) -> Callable[[Order, Reply], Reply]:
    """One client claims that loss, in a frame of its own."""

    def tamper(order: Order, reply: Reply) -> Reply:
        if order.purpose != "loss" or order.client != liar:
            return reply
        return Reply(liar, (pack_loss(workplace.method("main"), loss, Turn(order.round_number, liar, {})),))

    return tamper


def rounds_with_a_seat(loss: float, rounds: int = 12) -> list[bool]:
    """Whether client 5, who claims that loss, takes part, round by round; all six are asked, two train."""
    workplace = Workplace(digits_problem(parts=PARTS), chosen_settings(drawn=6, rounds=rounds))
    engine, method = Asking(workplace, claiming(workplace, 5, loss)), workplace.method("main")
    state = ServerState("main", 0, method.start())
    seats = []
    for _ in range(rounds):
        report = run_round(method, state, engine, Ledger(), Cohort(list(range(CLIENTS)), 0.5, workplace.drawn))
        seats.append(5 in report.participants)
    return seats


def test_nobody_talks_itself_into_every_round() -> None:
    """At most three times in a row, however large the loss that it claims."""
    seats = rounds_with_a_seat(1e30)
    assert not any(all(seats[at : at + 4]) for at in range(len(seats) - 3))
    assert sum(seats) <= 9


def test_losses_beyond_the_cap_are_equal_and_drawn_by_lot() -> None:
    """Two honest clients are as wrong as can be told; a liar that claims more wins no more often than they do."""
    losses = {0: 20.0, 1: 15.0, 2: 1e30, 3: 0.5}
    highest = Classification().highest_loss(10)
    chosen = [of_highest_loss(losses, 1, {}, highest, key)[0] for key in range(600)]
    assert highest == pytest.approx(11.51, abs=0.01)
    assert 3 not in chosen
    assert all(140 < chosen.count(client) < 260 for client in (0, 1, 2))


def test_a_negative_loss_is_refused() -> None:
    workplace = Workplace(digits_problem(parts=PARTS), chosen_settings(drawn=6))
    _, report, _ = one_round(claiming(workplace, 0, -1.0), drawn=6)
    assert report.failures[0].cause == "value"


def test_too_few_losses_end_the_run_before_anybody_trains() -> None:
    def silent(order: Order, reply: Reply) -> Reply:
        return Reply(order.client, ()) if order.purpose == "loss" and order.client > 1 else reply

    with pytest.raises(QuorumError, match="2 of 6 clients answered, 3 are needed"):
        one_round(silent, drawn=6)


def test_workers_change_nothing_and_a_resumed_run_equals_a_straight_one(tmp_path: Path) -> None:
    problem = digits_problem(parts=PARTS)
    summaries = {}
    for name, workers in (("one", 1), ("two", 2)):
        chosen = chosen_settings(rounds=3, workers=workers, folder=str(tmp_path), name=name, head="lda")
        summaries[name] = run_job(problem, chosen, RunFolder.create(chosen, "")).summary

    class Interrupted(Exception): ...

    def stop(progress: Progress) -> None:
        if progress.round_number == 1:
            raise Interrupted

    chosen = chosen_settings(rounds=3, folder=str(tmp_path), name="resumed", head="lda")
    folder = RunFolder.create(chosen, "")
    with pytest.raises(Interrupted):
        run_job(problem, chosen, folder, report=stop)
    summaries["resumed"] = run_job(problem, chosen, RunFolder.open(folder.path), resume=True).summary
    assert len({summary["model_sha256"] for summary in summaries.values()}) == 1
    assert len({(tmp_path / name / "ledger.csv").read_bytes() for name in summaries}) == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "deltamask"}, "a broadcast of deltamask is not a network"),
        ({"drawn": 1}, "fewer than the 2 clients that train"),
        ({"drawn": 0}, "drawn=0: needs at least 1"),
    ],
)
def test_what_cannot_be_chosen_by_loss_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Workplace(digits_problem(parts=PARTS), chosen_settings(**values))


@pytest.mark.parametrize("method", ["gradmask", "fedcode", "per-fedavg"])
def test_methods_of_other_kinds_can_tell_a_loss_too(method: str) -> None:
    """A mask, a broadcast that says what changed, a network of the client's own."""
    summary = run_job(digits_problem(parts=PARTS), chosen_settings(method=method)).summary
    assert summary["failed_clients"] == 0
    assert summary["participants"] == 2
