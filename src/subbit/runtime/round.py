"""One federated round, from the choice of clients to the new state, whatever the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subbit.errors import FrameError, QuorumError
from subbit.methods.base import Method, Part, State
from subbit.randomness import derive_key, numpy_generator
from subbit.runtime.downlink import Broadcasts, Downlink, make_downlink
from subbit.runtime.engines import Engine
from subbit.runtime.messages import Failure, Frames, Order, Phase, Purpose, Reply, decode_parts, parts_of
from subbit.runtime.selection import LOSS, of_highest_loss, unpack_loss
from subbit.wire.frame import Direction
from subbit.wire.ledger import Entry, Ledger


@dataclass
class ServerState:
    """Everything that a run needs to go on after any round. This is what a checkpoint holds."""

    phase: Phase
    next_round: int
    method: State
    head: NDArray[np.float32] | None = None
    memories: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)
    """What each client keeps between its turns. Kept here because the simulator is also the clients' disk."""
    broadcasts: Broadcasts = field(default_factory=Broadcasts)


@dataclass(frozen=True)
class RoundReport:
    participants: tuple[int, ...]
    answered: tuple[int, ...]
    failures: dict[int, Failure]
    observations: dict[str, float]
    """Means over the clients that answered."""


def run_round(
    method: Method[Any],
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    candidates: list[int],
    quorum: float,
    head_frame: bytes | None,
    drawn: int | None = None,
) -> RoundReport:
    """One round: `state` is brought forward, `ledger` gains an entry per frame.

    Participants are drawn, or, where `drawn` says how many to ask, those of highest loss among the drawn.
    """
    phase, number = state.phase, state.next_round
    failures: dict[int, Failure] = {}

    # 1. What goes down.
    downlink = make_downlink(method, phase, state.method, state.broadcasts, number)
    view = downlink.view

    # 2. Who takes part. The head is fitted by everybody who has data.
    asked = len(candidates) if phase == "head" else method.task.participants
    if drawn is None:
        participants = choose_participants(candidates, asked, method.task.seed, phase, number)
    else:
        clients = choose_participants(candidates, drawn, method.task.seed, phase, number)
        questions = make_orders(downlink, state, clients, head_frame, "loss")
        losses = _ask_losses(method, state, engine, ledger, questions, failures)
        _require_quorum(len(losses), len(clients), quorum, failures, number, phase)
        participants = of_highest_loss(losses, asked)
    orders = make_orders(downlink, state, participants, head_frame)
    _enter_downlink(ledger, method, orders)

    # 3. Clients train. 4. Every answer is checked, decoded and added as it comes, then forgotten.
    accumulator = method.accumulator()
    replies: Iterable[Reply] = engine.train(orders)
    if not accumulator.order_free:
        replies = in_order(replies, participants)
    observed: dict[int, dict[str, float]] = {}
    for reply in replies:
        client = reply.client
        _enter(ledger, (phase, number, client), "up", method.up_parts(), reply.frames)
        if reply.failure is None:
            try:
                payloads, examples = decode_parts(
                    method, phase, Direction.UP, reply.frames, view, number, client, receiver=client
                )
            except FrameError as error:
                failures[client] = Failure(error.cause, str(error))
                continue
            method.accumulate(accumulator, view, payloads, examples, number, client)
            state.memories[client] = reply.memory
            observed[client] = reply.observations
        else:
            failures[client] = reply.failure
            _forget_if_lost(state, client, reply.failure)

    # 5. Enough answers, or no step at all.
    _require_quorum(len(observed), len(participants), quorum, failures, number, phase)

    # 6. The new state.
    state.method = method.step(state.method, accumulator, number)
    state.next_round = number + 1
    answered = tuple(sorted(observed))
    downlink.remember(state.broadcasts, answered)
    return RoundReport(participants, answered, failures, _means([observed[client] for client in answered]))


def _ask_losses(
    method: Method[Any],
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    questions: list[Order],
    failures: dict[int, Failure],
) -> dict[int, float]:
    """The losses of those who answer; `failures` gains the others."""
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
    """A client that lost what it kept is a newcomer next time, who is sent the head again."""
    if failure.cause == "memory":
        state.memories.pop(client, None)
        state.broadcasts.seen.pop(client, None)


def _require_quorum(
    answered: int, asked: int, quorum: float, failures: dict[int, Failure], number: int, phase: Phase
) -> None:
    needed = math.ceil(quorum * asked)
    if answered < needed:
        first = next(iter(failures.values()))
        raise QuorumError(
            f"round {number} ({phase}): {answered} of {asked} clients answered, {needed} are needed "
            f"(quorum={quorum}). The first failure: {first.cause}: {first.message}"
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
        memory = state.memories.get(client, {})
        missed, snapshot = downlink.missing(state.broadcasts, client)
        first_turn = head_frame is not None and "fitted-head" not in memory
        orders.append(
            Order(
                downlink.phase,
                downlink.round_number,
                client,
                downlink.frames,
                head_frame if first_turn else None,
                memory,
                missed,
                snapshot,
                purpose,
            )
        )
    return orders


def choose_participants(candidates: list[int], asked: int, seed: int, phase: str, number: int) -> tuple[int, ...]:
    """A uniform choice without replacement that depends on the seed and the round alone."""
    if asked >= len(candidates):
        return tuple(candidates)
    generator = numpy_generator(derive_key(seed, f"participants-{phase}", number))
    return tuple(sorted(int(client) for client in generator.choice(candidates, asked, replace=False)))


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
            ledger.add(Entry(*where, "down", "head", "dense", len(order.head_frame), True))


def _enter(
    ledger: Ledger, where: tuple[Phase, int, int], way: Literal["up", "down"], parts: tuple[Part, ...], frames: Frames
) -> None:
    """Whatever was sent has crossed the wire, good or bad."""
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
