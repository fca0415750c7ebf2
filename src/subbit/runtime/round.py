"""One federated round, from client selection to the new state, for any engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subbit.core.busy import busy_with
from subbit.core.cohorts import choose_participants
from subbit.core.errors import FrameError, QuorumError
from subbit.core.randomness import derive_key
from subbit.methods.method import Method, State
from subbit.runtime.client_memory import NO_MEMORY, turn_number
from subbit.runtime.downlink import Broadcasts, Downlink, forget_broadcast, make_downlink
from subbit.runtime.engines import Engine
from subbit.runtime.high_loss import LOSS, count_choices, of_highest_loss, unpack_loss
from subbit.runtime.intake import Intake, Usable
from subbit.runtime.messages import Failure, Frames, Order, Phase, Purpose, Reply, parts_of
from subbit.wire.channel import Part
from subbit.wire.frame import Direction
from subbit.wire.ledger import Entry, Ledger


@dataclass
class ServerState:
    """Everything needed to resume a run after any round; the contents of a checkpoint."""

    phase: Phase
    next_round: int
    method: State
    head: NDArray[np.float32] | None = None
    kept: dict[int, int] = field(default_factory=dict)
    """By client, the turn whose memory is current. The memories themselves stay with the clients."""
    broadcasts: Broadcasts = field(default_factory=Broadcasts)
    chosen: dict[int, int] = field(default_factory=dict)
    """By client, how often in a row it was selected for its loss."""
    nodes: dict[str, int] = field(default_factory=dict)
    """The client that each node is, by the node's name, where nodes bring their own data."""


@dataclass(frozen=True)
class Cohort:
    """The clients that may participate in a round, and how many must."""

    candidates: list[int]
    quorum: float
    """Minimum share of the asked clients that must answer for a step."""
    drawn: int | None = None
    """Number of clients to ask for their loss, of which those with the highest loss participate. None: uniform
    selection."""


@dataclass(frozen=True)
class RoundReport:
    participants: tuple[int, ...]
    answered: tuple[int, ...]
    failures: dict[int, Failure]
    observations: dict[str, float]
    """Means over the clients that answered."""
    losses: dict[int, float]
    """Training losses that the clients reported."""


def run_round(
    method: Method[Any],
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    cohort: Cohort,
    head_frame: bytes | None = None,
    usable: Usable | None = None,
) -> RoundReport:
    """One round: updates `state` and adds an entry per frame to `ledger`.

    `head_frame` is sent to clients that do not have the fitted head yet. The step is not taken if the new state is not
    `usable`.
    """
    phase, number = state.phase, state.next_round
    failures: dict[int, Failure] = {}

    # 1. The broadcast.
    downlink = make_downlink(method, phase, state.method, state.broadcasts, number)
    view = downlink.view

    # 2. Client selection. All clients with data fit the head.
    asked = len(cohort.candidates) if phase == "head" else method.task.participants
    if cohort.drawn is None:
        participants = choose_participants(cohort.candidates, asked, method.task.seed, phase, number)
    else:
        clients = choose_participants(cohort.candidates, cohort.drawn, method.task.seed, phase, number)
        questions = make_orders(downlink, state, clients, head_frame, "loss")
        losses = _ask_losses(method, state, engine, ledger, questions, failures)
        _require_quorum(len(losses), len(clients), cohort.quorum, failures, number, phase)
        key = derive_key(method.task.seed, "equal-losses", number)
        participants = of_highest_loss(
            losses, asked, state.chosen, method.task.objective.highest_loss(method.task.classes), key
        )
        count_choices(state.chosen, losses, participants)
    orders = make_orders(downlink, state, participants, head_frame)
    _enter_downlink(ledger, method, orders)

    # 3. Clients train. 4. Every reply is checked, decoded and added as it arrives, then dropped.
    intake = Intake(method, phase, view, number, usable)
    replies: Iterable[Reply] = engine.train(orders)
    if not intake.order_free:
        replies = in_order(replies, participants)
    accepted: dict[int, Reply] = {}
    stage = "fitting the head" if phase == "head" else f"round {number + 1} of {method.task.rounds}"
    for count, reply in enumerate(replies, start=1):
        client = reply.client
        busy_with(f"{stage}: {count} of {len(participants)} clients answered")
        _enter(ledger, (phase, number, client), "up", method.up_parts(), reply.frames)
        if reply.failure is None:
            try:
                intake.add(client, reply.frames)
                accepted[client] = dataclasses.replace(reply, frames=())
            except FrameError as error:
                failures[client] = Failure(error.cause, str(error))
        else:
            failures[client] = reply.failure
            _forget_if_lost(state, client, reply.failure)

    # 5. Without a quorum there is no step.
    _require_quorum(len(accepted), len(participants), cohort.quorum, failures, number, phase)

    # 6. The new state, without contributors that would break it. Enough must remain.
    after, refused = intake.step(method.after_broadcast(state.method, downlink.held))
    failures |= refused
    answered = tuple(client for client in sorted(accepted) if client not in refused)
    _require_step(answered, refused, number, phase)
    _require_quorum(len(answered), len(participants), cohort.quorum, failures, number, phase)
    state.method, state.next_round = after, number + 1
    _remember(state, [accepted[client] for client in answered])
    downlink.remember(state.broadcasts, answered)
    forget_broadcast(method)
    observed = {client: accepted[client].observations for client in answered}
    losses = {
        client: float(found["loss"]) for client, found in observed.items() if math.isfinite(found.get("loss", math.nan))
    }
    return RoundReport(participants, answered, failures, _means([*observed.values()]), losses)


def _remember(state: ServerState, replies: list[Reply]) -> None:
    for reply in replies:
        if reply.kept == NO_MEMORY:
            state.kept.pop(reply.client, None)
        else:
            state.kept[reply.client] = reply.kept


def _ask_losses(
    method: Method[Any],
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    questions: list[Order],
    failures: dict[int, Failure],
) -> dict[int, float]:
    """The losses of the clients that answer; the others are added to `failures`."""
    losses = {}
    _enter_downlink(ledger, method, questions)
    for reply in engine.train(questions):
        where = (state.phase, state.next_round, reply.client)
        _enter(ledger, where, "up", (LOSS,), reply.frames)
        if reply.failure is None:
            try:
                losses[reply.client] = unpack_loss(method, reply.frames, state.next_round, reply.client)
            except FrameError as error:
                failures[reply.client] = Failure(error.cause, str(error))
        else:
            failures[reply.client] = reply.failure
            _forget_if_lost(state, reply.client, reply.failure)
    return losses


def _forget_if_lost(state: ServerState, client: int, failure: Failure) -> None:
    """A client that lost its memory counts as new next time and is sent the head again."""
    if failure.cause == "memory":
        state.kept.pop(client, None)
        state.broadcasts.seen.pop(client, None)


def _require_step(answered: tuple[int, ...], refused: dict[int, Failure], number: int, phase: Phase) -> None:
    """If no answer allows a step, and all for the same reason, that is not the clients' fault."""
    reasons = {failure.message for failure in refused.values()}
    if not answered and len(reasons) == 1:
        raise QuorumError(
            f"round {number} ({phase}): none of the {len(refused)} answers allows a step, all for one reason: the "
            f"aggregation, the step or a learning_rate that is too large is to blame, not a client: {reasons.pop()}"
        )


def _require_quorum(
    answered: int, asked: int, quorum: float, failures: dict[int, Failure], number: int, phase: Phase
) -> None:
    needed = math.ceil(quorum * asked)
    if answered < needed:
        first, causes = next(iter(failures.values())), {failure.cause for failure in failures.values()}
        together = len(failures) > 1 and not answered and len(causes) == 1
        raise QuorumError(
            f"round {number} ({phase}): {answered} of {asked} clients answered, {needed} are needed "
            f"(quorum={quorum}). {'All failed for one cause; the' if together else 'The'} first "
            f"failure: {first.cause}: {first.message}"
        )


def make_orders(
    downlink: Downlink,
    state: ServerState,
    clients: Iterable[int],
    head_frame: bytes | None,
    purpose: Purpose = "train",
) -> list[Order]:
    orders = []
    for client in clients:
        kept = state.kept.get(client, NO_MEMORY)
        missed, snapshot = downlink.missing(state.broadcasts, client)
        # The first memory of the main phase contains the head.
        first_turn = head_frame is not None and kept < turn_number("main", 0)
        orders.append(
            Order(
                downlink.phase,
                downlink.round_number,
                client,
                downlink.frames,
                head_frame if first_turn else None,
                kept,
                missed,
                snapshot,
                purpose,
            )
        )
    return orders


def in_order(replies: Iterable[Reply], participants: tuple[int, ...]) -> Iterator[Reply]:
    """Hold back early replies, as undecoded frames, until the clients before them have answered."""
    waiting: dict[int, Reply] = {}
    expected = iter(participants)
    client = next(expected, None)
    for reply in replies:
        waiting[reply.client] = reply
        while client in waiting:
            yield waiting.pop(client)
            client = next(expected, None)


def _enter_downlink(ledger: Ledger, method: Method[Any], orders: list[Order]) -> None:
    for order in orders:
        where = (order.phase, order.round_number, order.client)
        for frames in (order.frames, *order.missed):
            _enter(ledger, where, "down", method.down_parts(), frames)
        if order.snapshot:
            _enter(ledger, where, "down", parts_of(method, "snapshot", Direction.DOWN), order.snapshot)
        if order.head_frame is not None:
            ledger.add(Entry(*where, "down", "head", "dyadic", len(order.head_frame), True))


def _enter(
    ledger: Ledger, where: tuple[Phase, int, int], way: Literal["up", "down"], parts: tuple[Part, ...], frames: Frames
) -> None:
    """Every frame sent is counted, valid or not."""
    for index, frame in enumerate(frames):
        part = parts[index] if index < len(parts) else None
        name, codec = (part.name, part.codec.name) if part is not None else ("unexpected", "unknown")
        one_off = where[0] == "head" or (part is not None and part.one_off)
        if frame or part is None or not part.optional:
            ledger.add(Entry(*where, way, name, codec, len(frame), one_off))


def _means(observations: list[dict[str, float]]) -> dict[str, float]:
    names = {name for observation in observations for name in observation}
    return {
        name: sum(observation.get(name, 0.0) for observation in observations) / len(observations)
        for name in sorted(names)
    }
