"""The round: hostile and failing clients, the quorum, the order of replies, the choice of participants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from subbit.core.cohorts import choose_participants
from subbit.core.errors import QuorumError
from subbit.runtime.client import EvaluationOrder, client_turn
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.round import Cohort, RoundReport, ServerState, in_order, run_round
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger
from tests.problems import digits_problem, settings


class Tampering:
    """An engine whose network changes what some clients say."""

    def __init__(self, workplace: Workplace, tamper: Callable[[Order, Reply], Reply], backwards: bool = False) -> None:
        self.workplace, self.tamper, self.backwards = workplace, tamper, backwards

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in reversed(orders) if self.backwards else orders:
            yield self.tamper(order, client_turn(self.workplace, order))

    def candidates(self, clients: list[int]) -> list[int]:
        return clients

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        raise NotImplementedError

    def close(self) -> None: ...


def test_a_head_of_the_users_own_is_drawn_anew_where_that_is_asked_for() -> None:
    problem = digits_problem()
    given = problem.module[-1].weight.detach().clone()  # type: ignore[index,union-attr]
    kept, drawn, again = (
        Workplace(problem, settings(head=head, select="2.weight")).module[-1].weight.detach()  # type: ignore[index,union-attr]
        for head in ("keep", "kaiming", "kaiming")
    )
    assert kept.equal(given)
    assert not drawn.equal(given)
    assert drawn.equal(again)


def one_round(
    method: str = "deltamask", tamper: Callable[[Order, Reply], Reply] = lambda order, reply: reply, **options: object
) -> tuple[ServerState, RoundReport, Ledger]:
    quorum, backwards = float(options.pop("quorum", 0.5)), bool(options.pop("backwards", False))  # type: ignore[arg-type]
    workplace = Workplace(digits_problem(), settings(method=method, **options))
    made, ledger = workplace.method("main"), Ledger()
    state = ServerState("main", 0, made.start())
    engine = Tampering(workplace, tamper, backwards)
    report = run_round(made, state, engine, ledger, Cohort([0, 1, 2], quorum))
    return state, report, ledger


def only(client: int, change: Callable[[bytes], bytes]) -> Callable[[Order, Reply], Reply]:
    def tamper(order: Order, reply: Reply) -> Reply:
        frames = tuple(change(frame) for frame in reply.frames) if order.client == client else reply.frames
        return dataclasses.replace(reply, frames=frames)

    return tamper


def set_byte(position: int, value: int) -> Callable[[bytes], bytes]:
    return lambda frame: frame[:position] + bytes([value]) + frame[position + 1 :]


@pytest.mark.parametrize("method", ["deltamask", "fedpm", "fedavg"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda frame: b"rubbish", "not-a-frame"),
        (lambda frame: b"", "not-a-frame"),
        (lambda frame: frame[:-1], "truncated"),
        (lambda frame: frame + b"\0", "length"),
        (set_byte(16, 9), "checksum"),
        (set_byte(4, 99), "version"),
    ],
)
def test_a_bad_frame_is_counted_by_cause_and_the_round_goes_on(
    method: str, change: Callable[[bytes], bytes], cause: str
) -> None:
    state, report, ledger = one_round(method, only(1, change))
    assert report.answered == (0, 2)
    assert {client: failure.cause for client, failure in report.failures.items()} == {1: cause}
    assert state.next_round == 1
    assert ledger.totals.uploads == 3  # What arrived has crossed the wire, good or bad.


def test_a_frame_of_another_client_or_round_is_refused() -> None:
    seen: dict[int, Reply] = {}

    def replay(order: Order, reply: Reply) -> Reply:
        seen[order.client] = reply
        return Reply(1, seen[0].frames) if order.client == 1 else reply

    _, report, _ = one_round(tamper=replay)
    assert report.failures[1].cause == "client"


def test_a_frame_of_a_run_with_other_codec_options_is_refused() -> None:
    foreign: dict[int, Reply] = {}

    def remember(order: Order, reply: Reply) -> Reply:
        foreign[order.client] = reply
        return reply

    one_round(tamper=remember, codec="bfuse", bits=8)
    _, report, _ = one_round(
        tamper=lambda order, reply: foreign[1] if order.client == 1 else reply, codec="bfuse", bits=16
    )
    assert report.failures[1].cause == "template"


def test_the_state_does_not_know_a_client_whose_frame_was_refused() -> None:
    """Two good clients: total 2, and the counts are those of the two alone."""
    with_bad, _, _ = one_round(tamper=only(1, lambda frame: b""))
    assert with_bad.method["total"] == 2
    assert int(np.asarray(with_bad.method["counts"]).max()) <= 2


def test_too_few_answers_are_an_error_with_the_first_reason_and_no_step() -> None:
    def fail(order: Order, reply: Reply) -> Reply:
        return Reply(order.client, failure=Failure("training", "out of luck")) if order.client < 2 else reply

    with pytest.raises(QuorumError, match=r"1 of 3 clients answered, 2 are needed.*out of luck"):
        one_round(tamper=fail)


@pytest.mark.parametrize("method", ["deltamask", "fedpm", "fedavg"])
def test_the_order_in_which_clients_answer_changes_nothing(method: str) -> None:
    forwards, _, _ = one_round(method)
    backwards, _, _ = one_round(method, backwards=True)
    for name, value in forwards.method.items():
        assert np.array_equal(value, backwards.method[name])


def test_replies_are_held_back_until_their_turn() -> None:
    arriving = [Reply(client) for client in (5, 2, 9, 1)]
    assert [reply.client for reply in in_order(arriving, (1, 2, 5, 9))] == [1, 2, 5, 9]


def test_participants_depend_on_seed_and_round_alone() -> None:
    candidates = list(range(0, 40, 2))
    first = choose_participants(candidates, 5, 0, "main", 3)
    assert first == choose_participants(candidates, 5, 0, "main", 3)
    assert len(set(first)) == 5
    assert set(first) <= set(candidates)
    assert first != choose_participants(candidates, 5, 0, "main", 4)
    assert first != choose_participants(candidates, 5, 1, "main", 3)
    assert choose_participants(candidates, 99, 0, "main", 0) == tuple(candidates)


def test_without_learning_every_upload_is_a_header_and_at_most_a_byte() -> None:
    _, _, ledger = one_round(learning_rate=0.0)
    sizes = [entry.frame_bytes for entry in ledger.entries if entry.direction == "up"]
    assert len(sizes) == 3
    assert max(sizes) <= 41
