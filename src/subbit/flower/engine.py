"""Flower as an engine: orders are pushed to nodes, replies are taken one by one as they arrive.

The server process keeps no list of replies: at most `PULL_AT_ONCE` undecoded ones are in memory, whatever the number
of clients. Flower itself reports nothing about a node that was killed or is slow; the deadline here does.

A client's memory stays on its node. What the server remembers of it is the turn whose memory counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from subbit.errors import FrameError
from subbit.flower.records import order_to_records, printable, records_to_reply
from subbit.flower.roster import Roster
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.engines import InProcess
from subbit.runtime.memory import turn_number
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES

PULL_AT_ONCE = 8
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
GRACE_SECONDS = 30.0
"""Flower forgets a message that long after the deadline: a node that wakes up later does not train for nothing."""


class FlowerEngine:
    """Trains on Flower's nodes and evaluates in the server's process."""

    def __init__(self, grid: Grid, workplace: Workplace) -> None:
        run, problem = workplace.settings.run, workplace.problem
        self._grid, self._workplace, self._job, self._deadline = grid, workplace, workplace.job, run.deadline
        self._roster = Roster(grid, problem.clients, run.deadline)
        self._roster.wait(problem.clients_with_data(), run.quorum)
        self._here = InProcess(workplace, run.threads)

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        end = time.monotonic() + self._deadline
        self._roster.refresh()
        waiting: dict[str, Order] = {}
        for order in orders:
            node = self._roster.node_of(order.client)
            message_id = self._push(order, node) if node is not None else None
            if message_id is not None:
                waiting[message_id] = order
            else:
                yield Reply(order.client, failure=Failure("absent", "no node of this client is connected"))
        pause = SHORTEST_PAUSE
        while waiting:
            asked, arrived = list(waiting), len(waiting)
            for start in range(0, len(asked), PULL_AT_ONCE):
                for message in self._grid.pull_messages(asked[start : start + PULL_AT_ONCE]):
                    answered = waiting.pop(message.metadata.reply_to_message_id, None)
                    if answered is not None:
                        yield self._reply(answered, message)
            arrived -= len(waiting)
            if time.monotonic() >= end:
                break
            pause = SHORTEST_PAUSE if arrived else min(LONGEST_PAUSE, 2 * pause)
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        for order in waiting.values():
            failure = Failure("deadline", f"no answer within {self._deadline:g} s (deadline)")
            yield Reply(order.client, failure=failure)

    def _push(self, order: Order, node: int) -> str | None:
        """The message's identity, or nothing where Flower refuses it. One at a time, so that it is clear which."""
        content = order_to_records(order, self._job)
        message = Message(
            content,
            node,
            MessageType.TRAIN,
            ttl=self._deadline + GRACE_SECONDS,
            group_id=str(turn_number(order.phase, order.round_number)),
        )
        return next(iter(self._grid.push_messages([message])), None)

    def _reply(self, order: Order, message: Message) -> Reply:
        if message.has_error():
            code, reason = message.error.code, printable(message.error.reason or "")
            if code == ErrorCode.NODE_UNAVAILABLE:
                return Reply(order.client, failure=Failure("absent", f"its node is gone: {reason}"))
            return Reply(order.client, failure=Failure("error", f"Flower error {code}: {reason}"))
        try:
            return records_to_reply(message.content, order, self._most_bytes(order))
        except FrameError as error:
            return Reply(order.client, failure=Failure(error.cause, str(error)))

    def _most_bytes(self, order: Order) -> int:
        """No codec needs more; each frame by itself is bounded again when it is unpacked."""
        parts = self._workplace.method(order.phase).up_parts()
        return sum(HEADER_BYTES + 1024 + 8 * part.size for part in parts)

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.bool_]]:
        return self._here.evaluate(orders)

    def close(self) -> None:
        self._here.close()
