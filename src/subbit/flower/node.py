"""The node's half of a round: from a Flower message to a turn and back."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from subbit.errors import FrameError, SubbitError

if TYPE_CHECKING:
    from subbit.flower.memory import NodeMemory
    from subbit.flower.records import Assignment
    from subbit.runtime.messages import Reply
    from subbit.runtime.workplace import Workplace

# Flower starts a process for every message. torch and the rest of the library, which take seconds to import, are
# imported when an order comes: a node that only says who it is needs neither.


def make_client_app(configuration: Callable[[Context], str], memory_folder: Callable[[Context], Path]) -> ClientApp:
    """`configuration` gives the resolved settings as TOML, `memory_folder` where this node's clients keep things."""
    app = ClientApp()

    @app.query()
    def announce(message: Message, context: Context) -> Message:
        node = context.node_config
        return Message(announcement(node.get("partition-id"), node.get("num-partitions")), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        from subbit.flower.memory import NodeMemory
        from subbit.flower.records import records_to_order, reply_to_records
        from subbit.runtime.messages import Failure, Reply

        client = context.node_config.get("partition-id")
        try:
            assignment = records_to_order(message.content)
            if assignment.order.client != client:
                raise FrameError(
                    "client", f"an order for client {assignment.order.client} at the node of partition-id {client!r}"
                )
            reply = take_turn(configuration(context), assignment, NodeMemory(memory_folder(context)))
        except SubbitError as error:
            failure = Failure(getattr(error, "cause", "setup"), str(error))
            reply = Reply(0, failure=failure)
        return Message(reply_to_records(reply), reply_to=message)

    return app


def announcement(partition: object, partitions: object) -> RecordDict:
    """What a node answers. A node that was started without a partition says -1."""
    values = {"partition-id": partition, "num-partitions": partitions}
    return RecordDict(
        {"node": ConfigRecord({name: value if type(value) is int else -1 for name, value in values.items()})}
    )


def take_turn(configuration: str, assignment: Assignment, memory: NodeMemory) -> Reply:
    from subbit.runtime.client import client_turn

    workplace = _workplace(configuration, assignment.job)
    workplace.memories = memory.of(assignment.job)
    return client_turn(workplace, assignment.order)


@lru_cache(maxsize=1)
def _workplace(configuration: str, job: str) -> Workplace:
    """Built once per process: a simulated node takes many turns in one, a real one takes one turn in each."""
    import torch

    from subbit.config.load import resolve
    from subbit.runtime.problem import build_problem
    from subbit.runtime.workplace import Workplace

    settings = resolve(tomllib.loads(configuration))
    torch.set_num_threads(settings.run.threads)
    return Workplace(build_problem(settings.run), settings, job)
