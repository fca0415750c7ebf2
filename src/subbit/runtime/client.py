"""A client's turn: check the broadcast, train, encode the answer. What goes wrong becomes a `Failure`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Kind
from subbit.codecs.bits import count_ones
from subbit.errors import SubbitError
from subbit.methods.base import Method, State, Turn
from subbit.runtime.downlink import receive
from subbit.runtime.memory import Memory, turn_number
from subbit.runtime.messages import Failure, Order, Purpose, Reply, decode_parts, encode_parts
from subbit.runtime.selection import own_loss, pack_loss
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up


def client_turn(workplace: Workplace, order: Order) -> Reply:
    """One client's part in one round. `OSError` where what it keeps cannot be written: not its fault."""
    reply, memory = _answer(workplace, order)
    if reply.failure is not None or order.purpose != "train":
        return reply
    turn = turn_number(order.phase, order.round_number)
    return dataclasses.replace(reply, kept=workplace.memories.write(order.client, turn, memory, order.kept))


def _answer(workplace: Workplace, order: Order) -> tuple[Reply, Memory]:
    """The reply, and what the client has to keep if it counts."""
    memory: Memory = {}
    try:
        memory = workplace.memories.read(order.client, order.kept)
        return ANSWERS[order.purpose](workplace, order, memory), memory
    except SubbitError as error:
        cause = getattr(error, "cause", "training")
        return Reply(order.client, failure=Failure(cause, str(error))), memory
    except Exception as error:  # A client's failure must never end the round, whatever it is.
        return Reply(order.client, failure=Failure("error", f"{type(error).__name__}: {error}")), memory


def _turn(workplace: Workplace, order: Order, memory: Memory) -> Reply:
    where = up(order.round_number, order.client)
    method, view = _receive(workplace, order, memory)
    turn = Turn(order.round_number, order.client, memory)
    update = method.train(view, workplace.problem.client_data(order.client), turn)
    frames = encode_parts(method, order.phase, where, update.payloads, view, update.examples)
    observations = dict(update.observations)
    # Bits that may arrive as others. A distribution from which the coder draws has no bits that could flip.
    lossy = [
        part
        for part in method.up_parts()
        if not part.codec.exact and part.codec.kind is Kind.BITS and update.payloads[part.name].dtype == np.uint8
    ]
    if lossy:
        # What the server will read instead of what was meant: known here, where both are.
        decoded, _ = decode_parts(method, order.phase, where, frames, view)
        observations["false_flips"] = sum(
            count_ones(decoded[part.name] & ~update.payloads[part.name]) for part in lossy
        )
    return Reply(order.client, frames, observations=observations)


def _receive(workplace: Workplace, order: Order, memory: Memory) -> tuple[Method[Any], Any]:
    """The method, and what its broadcast means; the memory gains what has just arrived."""
    method = workplace.method(order.phase)
    if order.head_frame is not None:
        memory["fitted-head"] = workplace.unpack_head(order.head_frame)
    workplace.write_head(memory.get("fitted-head"))
    return method, receive(method, order, memory)


def _own_accuracy(workplace: Workplace, order: Order, memory: Memory) -> Reply:
    """How many of its own test examples the client's own network gets right. What it knew before, it knows after."""
    method, view = _receive(workplace, order, memory)
    problem = workplace.problem
    method.personalise(view, problem.client_data(order.client), Turn(order.round_number, order.client, memory))
    correct = workplace.correct(problem.own_test(order.client))
    return Reply(order.client, observations={"correct": float(correct.sum()), "examples": float(correct.size)})


def _own_loss(workplace: Workplace, order: Order, memory: Memory) -> Reply:
    method, view = _receive(workplace, order, memory)
    turn = Turn(order.round_number, order.client, memory)
    loss = own_loss(method, view, workplace.problem.client_data(order.client), turn)
    return Reply(order.client, (pack_loss(method, loss, turn),))


ANSWERS: dict[Purpose, Callable[[Workplace, Order, Memory], Reply]] = {
    "train": _turn,
    "evaluate": _own_accuracy,
    "loss": _own_loss,
}


@dataclass(frozen=True)
class EvaluationOrder:
    """A slice of the test set, for one network of one state."""

    state: State | None
    network: str
    key: int
    head: NDArray[np.float32] | None
    start: int
    stop: int


def evaluation_turn(workplace: Workplace, order: EvaluationOrder) -> NDArray[np.bool_]:
    """Which of the examples the network gets right."""
    workplace.write_network(order.state, order.network, order.key, order.head)
    return workplace.correct(np.arange(order.start, order.stop))
