"""Client side of a round: from a Flower message to a turn and back."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from subbit.core.errors import FrameError, SubbitError

if TYPE_CHECKING:
    from subbit.flower.node_memory import NodeMemory
    from subbit.flower.records import Assignment
    from subbit.runtime.messages import Reply
    from subbit.runtime.workplace import Workplace

FINISHED_ACTION = "finished"
log = logging.getLogger("flwr")

# Flower starts a process for every message. torch and most of the library take seconds to import, so they are imported
# only when a message needs them.


def make_client_app(configuration: Callable[[Context], str], memory: Callable[[Context], NodeMemory]) -> ClientApp:
    """`configuration` returns the resolved settings as TOML, `memory` where this node's clients keep their memories."""
    app = ClientApp()

    @app.query()
    def announce(message: Message, context: Context) -> Message:
        from subbit.flower.announcement import announcement

        node = context.node_config
        numbers = node.get("partition-id"), node.get("num-partitions")
        return Message(announcement(*numbers, lambda: configuration(context)), reply_to=message)

    @app.query(FINISHED_ACTION)
    def finished(message: Message, context: Context) -> Message:
        from subbit.flower.records import records_to_finished

        try:
            memory(context).forget(records_to_finished(message.content))
        except SubbitError as error:
            # The server only waits for an answer; the reason is in the node's log.
            log.warning("The finished job is not forgotten: %s", error)
        return Message(RecordDict(), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        from subbit.flower.records import records_to_order, reply_to_records
        from subbit.runtime.messages import Failure, Reply

        client = context.node_config.get("partition-id")
        try:
            assignment = records_to_order(message.content)
            if assignment.order.client != client:
                raise FrameError(
                    "client", f"an order for client {assignment.order.client} at the node of partition-id {client!r}"
                )
            reply = take_turn(configuration(context), assignment, memory(context))
        except SubbitError as error:
            reply = Reply(0, failure=Failure(getattr(error, "cause", "setup"), str(error)))
        except OSError as error:  # Data or a model cannot be read or cached. Paths stay on the node.
            reason = error.strerror or type(error).__name__
            reply = Reply(0, failure=Failure("setup", f"this node cannot prepare its turn: {reason}"))
        return Message(reply_to_records(reply), reply_to=message)

    return app


def take_turn(configuration: str, assignment: Assignment, memory: NodeMemory) -> Reply:
    from subbit.runtime.client import client_turn

    workplace = _workplace(configuration, assignment.job)
    workplace.memories = memory.of(assignment.job, personal=workplace.method("main").personal)
    return client_turn(workplace, assignment.order)


@lru_cache(maxsize=1)
def _workplace(configuration: str, job: str) -> Workplace:
    """Built once per process: a simulated node takes many turns in one process, a real node one turn per process."""
    import torch

    from subbit.config.resolve import resolve_recorded
    from subbit.runtime.problem import build_problem
    from subbit.runtime.workplace import Workplace

    settings = resolve_recorded(tomllib.loads(configuration))
    torch.set_num_threads(settings.run.threads)
    return Workplace(build_problem(settings.run), settings, job)
