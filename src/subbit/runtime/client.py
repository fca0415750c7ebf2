"""A client's turn: check the broadcast, train, encode the upload. Errors become a `Failure`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Kind
from subbit.codecs.packed import count_ones
from subbit.core.errors import SubbitError
from subbit.methods.method import Method, State, Turn, Update
from subbit.objectives.objective import add_up
from subbit.runtime.client_memory import Memory, turn_number
from subbit.runtime.downlink import receive
from subbit.runtime.high_loss import own_loss, pack_loss
from subbit.runtime.lean_torch import leave_compiler_out
from subbit.runtime.messages import Failure, Frames, Order, Reply, decode_parts, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up

TALLY = "tally_"
leave_compiler_out()  # In every process that trains clients.


def client_turn(workplace: Workplace, order: Order) -> Reply:
    """One client's part in one round. Raises `OSError` if its memory cannot be written, which is not the client's
    fault."""
    try:
        memory = workplace.memories.read(order.client, order.kept)
        method, view = _receive(workplace, order, memory)
        data, turn = workplace.problem.client_data(order.client), Turn(order.round_number, order.client, memory)
        if order.purpose in ("evaluate", "start"):
            if order.purpose == "start":
                workplace.write_network(None, method.primary_network, 0, memory.get("fitted-head"))
            elif method.personal:
                method.personalise(view, data, turn)
            else:
                method.write_received(view)
            return _own_tally(workplace, order.client)
        if order.purpose == "loss":
            return Reply(order.client, (pack_loss(method, own_loss(method, view, data, turn), turn),))
        update = method.train(view, data, turn)
        where = up(order.round_number, order.client)
        frames = encode_parts(method, order.phase, where, update.payloads, view, update.examples)
        observations = {**update.observations, **_false_flips(method, order, update, frames, view)}
    except Exception as error:  # No error of a client may end the round.
        return Reply(order.client, failure=_failure(error))
    number = turn_number(order.phase, order.round_number)
    kept = workplace.memories.write(order.client, number, memory, order.kept)
    return Reply(order.client, frames, kept=kept, observations=observations)


def _failure(error: Exception) -> Failure:
    if isinstance(error, SubbitError):
        return Failure(getattr(error, "cause", "training"), str(error))
    return Failure("error", f"{type(error).__name__}: {error}")


def _receive(workplace: Workplace, order: Order, memory: Memory) -> tuple[Method[Any], Any]:
    """The method, with the module bound to it, and the decoded broadcast. Updates `memory` with what was received."""
    workplace.attach(order.phase)
    if order.head_frame is not None:
        memory["fitted-head"] = workplace.unpack_head(order.head_frame)
    workplace.write_head(memory.get("fitted-head"))
    method = workplace.method(order.phase)
    return method, receive(method, order, memory)


def _false_flips(method: Method[Any], order: Order, update: Update, frames: Frames, view: Any) -> dict[str, float]:
    """How many bits the server will decode wrongly. Measured here, where both the original and the frames are known."""
    # For a codec that samples from a distribution there are no wrong bits.
    lossy = [
        part
        for part in method.up_parts()
        if not part.codec.exact and part.codec.kind is Kind.BITS and update.payloads[part.name].dtype == np.uint8
    ]
    if not lossy:
        return {}
    decoded, _ = decode_parts(method, order.phase, up(order.round_number, order.client), frames, view)
    return {"false_flips": sum(count_ones(decoded[part.name] & ~update.payloads[part.name]) for part in lossy)}


def _own_tally(workplace: Workplace, client: int) -> Reply:
    """How the client's network, as written to the module, does on its own test examples: the objective's sums."""
    tallies = workplace.tally(workplace.problem.own_test(client))
    sums: Iterable[float] = add_up(tallies) if len(tallies) else ()
    return Reply(client, observations={f"{TALLY}{place}": float(value) for place, value in enumerate(sums)})


@dataclass(frozen=True)
class EvaluationOrder:
    """A slice of the test set, for one network of one state."""

    state: State | None
    network: str
    key: int
    head: NDArray[np.float32] | None
    start: int
    stop: int


def evaluation_turn(workplace: Workplace, order: EvaluationOrder) -> NDArray[np.float64]:
    """How the network does on each example."""
    workplace.write_network(order.state, order.network, order.key, order.head)
    return workplace.tally(np.arange(order.start, order.stop))
