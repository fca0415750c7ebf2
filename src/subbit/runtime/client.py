"""A client's turn: check the broadcast, train, encode the answer. What goes wrong becomes a `Failure`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Kind
from subbit.codecs.bits import count_ones
from subbit.errors import SubbitError
from subbit.methods.base import State, Turn
from subbit.runtime.messages import Failure, Order, Reply, decode_parts, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import EVERYONE, Direction


def client_turn(workplace: Workplace, order: Order) -> Reply:
    """One client's part in one round."""
    try:
        return _turn(workplace, order)
    except SubbitError as error:
        cause = getattr(error, "cause", "training")
        return Reply(order.client, failure=Failure(cause, str(error)))
    except Exception as error:  # A client's failure must never end the round, whatever it is.
        return Reply(order.client, failure=Failure("error", f"{type(error).__name__}: {error}"))


def _turn(workplace: Workplace, order: Order) -> Reply:
    where = (order.round_number, order.client)
    method = workplace.method(order.phase)
    memory = dict(order.memory)
    if order.head_frame is not None:
        memory["fitted-head"] = workplace.unpack_head(order.head_frame)
    workplace.write_head(memory.get("fitted-head"))
    broadcast, _ = decode_parts(method, order.phase, Direction.DOWN, order.frames, None, *where, receiver=EVERYONE)
    view = method.open(broadcast, order.round_number)
    turn = Turn(*where, memory)
    update = method.train(view, workplace.problem.client_data(order.client), turn)
    frames = encode_parts(
        method,
        order.phase,
        Direction.UP,
        update.payloads,
        view,
        *where,
        receiver=order.client,
        examples=update.examples,
    )
    observations = dict(update.observations)
    # Bits that may arrive as others. A distribution from which the coder draws has no bits that could flip.
    lossy = [
        part
        for part in method.up_parts()
        if not part.codec.exact and part.codec.kind is Kind.BITS and update.payloads[part.name].dtype == np.uint8
    ]
    if lossy:
        # What the server will read instead of what was meant: known here, where both are.
        decoded, _ = decode_parts(method, order.phase, Direction.UP, frames, view, *where, receiver=order.client)
        observations["false_flips"] = sum(
            count_ones(decoded[part.name] & ~update.payloads[part.name]) for part in lossy
        )
    return Reply(order.client, frames, memory=memory, observations=observations)


@dataclass(frozen=True)
class EvaluationOrder:
    """A slice of the test set, for one network of one state."""

    state: State | None
    network: str
    key: int
    head: NDArray[np.float32] | None
    start: int
    stop: int


def evaluation_turn(workplace: Workplace, order: EvaluationOrder) -> int:
    workplace.write_network(order.state, order.network, order.key, order.head)
    return workplace.count_correct(order.start, order.stop)
