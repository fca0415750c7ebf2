"""Flower as an engine: sends orders to nodes and takes replies one by one as they arrive.

Only one undecoded reply is in memory at a time, regardless of the number of clients. Flower does not report slow nodes;
the deadline here does.

A client's memory stays on its node. The server stores only the turn whose memory is current.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from subbit.config.resolve import write_toml
from subbit.core.errors import FrameError
from subbit.flower.announcement import Expected, configuration_digest
from subbit.flower.mailbox import Mailbox
from subbit.flower.records import (
    FINISHED,
    finished_to_records,
    order_to_records,
    printable,
    records_to_reply,
)
from subbit.flower.roster import Roster, log
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.client_memory import turn_number
from subbit.runtime.engines import InProcess
from subbit.runtime.high_loss import LOSS
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.own_nodes import OwnProblem
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
GRACE_SECONDS = 30.0
"""Flower drops a message this long after the deadline, so that a late node does not train for nothing."""
REFRESH_SECONDS = 2.0
"""While a round waits, how often to check which nodes have connected or left."""
FINISH_SECONDS = 30.0
"""At the end of a run, how long to wait for nodes to delete the job. A node starts a process for that."""


class FlowerEngine:
    """Trains on Flower's nodes and evaluates in the server's process."""

    def __init__(self, grid: Grid, workplace: Workplace) -> None:
        run, problem = workplace.settings.run, workplace.problem
        self._workplace, self._job, self._deadline = workplace, workplace.job, run.deadline
        digest = configuration_digest(write_toml(workplace.settings))
        own = isinstance(problem, OwnProblem)
        expected = Expected(problem.clients, digest, own_data=own, most_examples=run.most_examples)
        self._mailbox, self._roster = Mailbox(grid), Roster(grid, expected, run.deadline, problem.nodes)
        if isinstance(problem, OwnProblem):
            self._roster.examples = problem.announced
        self._quorum, self._own = run.quorum, own
        self._roster.wait(problem.clients_with_data(), run.quorum, run.start_with)
        self._here = InProcess(workplace, run.threads)

    def candidates(self, clients: list[int]) -> list[int]:
        """With own data, those whose nodes are connected; the number of nodes is not known before. Else all: who is
        absent counts as a failure."""
        if not self._own:
            return clients
        self._roster.refresh()
        if not self._roster.present():
            self._roster.wait(clients, 1 / len(clients), 1)
        return self._roster.present()

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        end = time.monotonic() + self._deadline
        self._roster.refresh()
        waiting: dict[str, tuple[Order, int]] = {}
        for order in orders:
            if not self._send(order, waiting):
                yield Reply(order.client, failure=Failure("absent", "no node of this client is connected"))
        pause, refreshed = SHORTEST_PAUSE, time.monotonic()
        while waiting:
            arrived, started = len(waiting), time.monotonic()
            for message_id, message in self._mailbox.pull(list(waiting)):
                order, node = waiting.pop(message_id)
                if _is_gone(message) and self._send(order, waiting, instead_of=node):
                    continue
                yield self._reply(order, message)
            arrived -= len(waiting)
            now = time.monotonic()
            if now >= end:
                break
            if now >= refreshed + REFRESH_SECONDS:
                self._roster.refresh()
                refreshed = now
            # Without arrivals, wait at least as long as the polling took: with many clients it would keep the SuperLink
            # busy.
            pause = SHORTEST_PAUSE if arrived else max(min(LONGEST_PAUSE, 2 * pause), now - started)
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        for order, _ in waiting.values():
            failure = Failure("deadline", f"no answer within {self._deadline:g} s (deadline)")
            yield Reply(order.client, failure=failure)

    def _send(self, order: Order, waiting: dict[str, tuple[Order, int]], instead_of: int | None = None) -> bool:
        """Send the order, if possible to a node other than `instead_of`; returns whether it was sent."""
        if instead_of is not None:
            self._roster.refresh()
        node = self._roster.node_of(order.client)
        if node is None or node == instead_of:
            return False
        content = order_to_records(order, self._job)
        message = Message(
            content,
            node,
            MessageType.TRAIN,
            ttl=self._deadline + GRACE_SECONDS,
            group_id=str(turn_number(order.phase, order.round_number)),
        )
        message_id = self._mailbox.push(message)
        if message_id is not None:
            waiting[message_id] = (order, node)
        return message_id is not None

    def finish(self) -> None:
        """Tell the nodes to delete what they keep for this job. Errors are only logged, since the run is complete.

        Not done for personal methods: there, the nodes' memories are the clients' networks.
        """
        try:
            if not self._workplace.method("main").personal:
                self._tell_finished()
        except Exception as error:
            log.warning("The nodes were not told that the job is finished (%s)", type(error).__name__)

    def _tell_finished(self) -> None:
        self._roster.refresh()
        content, end = finished_to_records(self._job), time.monotonic() + FINISH_SECONDS
        messages = (Message(content, node, FINISHED, ttl=FINISH_SECONDS) for node in self._roster.nodes())
        waiting = {name for name in map(self._mailbox.push, messages) if name is not None}
        while waiting and time.monotonic() < end:
            waiting -= {name for name, _ in self._mailbox.pull(list(waiting))}
            time.sleep(LONGEST_PAUSE if waiting else 0.0)

    def _reply(self, order: Order, message: Message | None) -> Reply:
        if message is None:
            return Reply(order.client, failure=Failure("record", "its answer cannot be read"))
        if message.has_error():
            code, reason = message.error.code, printable(message.error.reason or "")
            if _is_gone(message):
                return Reply(order.client, failure=Failure("absent", f"its node is gone: {reason}"))
            return Reply(order.client, failure=Failure("error", f"Flower error {code}: {reason}"))
        try:
            return records_to_reply(message.content, order, self._most_bytes(order))
        except FrameError as error:
            return Reply(order.client, failure=Failure(error.cause, str(error)))

    def _most_bytes(self, order: Order) -> int:
        """Upper bound for all codecs; each frame is bounded again when it is unpacked."""
        if order.purpose in ("evaluate", "start"):
            return 0  # Sums are observations.
        parts = (LOSS,) if order.purpose == "loss" else self._workplace.method(order.phase).up_parts()
        return sum(HEADER_BYTES + 1024 + 8 * part.size for part in parts)

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        return self._here.evaluate(orders)

    def close(self) -> None:
        if self._roster.refused:
            log.warning("Nodes refused in this run, by cause: %s", dict(self._roster.refused))
        self._here.close()


def _is_gone(message: Message | None) -> bool:
    return message is not None and message.has_error() and message.error.code == ErrorCode.NODE_UNAVAILABLE
