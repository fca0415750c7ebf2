"""Client side of a round: from a Flower message to a turn and back."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from subbit.core.errors import FrameError, SubbitError
from subbit.flower.announcement import OWN

if TYPE_CHECKING:
    from subbit.flower.node_memory import NodeMemory
    from subbit.flower.records import Assignment
    from subbit.runtime.messages import Reply
    from subbit.runtime.own_nodes import Own
    from subbit.runtime.workplace import Workplace

FINISHED_ACTION = "finished"
log = logging.getLogger("flwr")

# Flower starts a process for every message. torch and most of the library take seconds to import, so they are imported
# only when a message needs them.


def make_client_app(
    configuration: Callable[[Context], str],
    memory: Callable[[Context], NodeMemory],
    own: Callable[[], Own] | None = None,
) -> ClientApp:
    """`configuration` returns the resolved settings as TOML, `memory` where this node's clients keep their memories,
    `own` what the app brings of its own."""
    app = ClientApp()

    @app.query()
    def announce(message: Message, context: Context) -> Message:
        from subbit.flower.announcement import announcement

        def count(text: str) -> int:
            return count_examples(text, context.node_config, own)

        return Message(announcement(context.node_config, lambda: configuration(context), count), reply_to=message)

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

        try:
            assignment, text = records_to_order(message.content), configuration(context)
            node = None
            if tomllib.loads(text)["dataset"] == OWN:  # Whichever client the server calls it.
                node = NodeWithData(tuple(sorted(context.node_config.items())), own)
            elif assignment.order.client != context.node_config.get("partition-id"):
                partition = context.node_config.get("partition-id")
                raise FrameError(
                    "client", f"an order for client {assignment.order.client} at the node of partition-id {partition!r}"
                )
            device = context.node_config.get("device")  # A node's own business, whatever the server has.
            reply = take_turn(text, assignment, memory(context), node, None if device is None else str(device))
        except SubbitError as error:
            reply = Reply(0, failure=Failure(getattr(error, "cause", "setup"), str(error)))
        except OSError as error:  # Data or a model cannot be read or cached. Paths stay on the node.
            reason = error.strerror or type(error).__name__
            reply = Reply(0, failure=Failure("setup", f"this node cannot prepare its turn: {reason}"))
        return Message(reply_to_records(reply), reply_to=message)

    return app


@dataclass(frozen=True)
class NodeWithData:
    """A node that has its own data: its `--node-config`, and what the app brings to read them."""

    config: tuple[tuple[str, Any], ...]
    own: Callable[[], Own] | None


def count_examples(configuration: str, node: Mapping[str, Any], own: Callable[[], Own] | None) -> int:
    """How many training examples this node has. What does not fit is told to the server by form, and in full to the
    node's own log: names of files and classes stay here."""
    from subbit.config.resolve import resolve_recorded
    from subbit.flower.announcement import RefusedError
    from subbit.runtime.own_nodes import NOTHING_OWN, FormError, node_data

    run = resolve_recorded(tomllib.loads(configuration)).run
    try:
        return len(node_data(run, dict(node), NOTHING_OWN if own is None else own())[0])
    except FormError as error:
        raise RefusedError("data", str(error)) from None
    except Exception as error:
        log.error("This node's data cannot be used: %s: %s", type(error).__name__, error)
        raise RefusedError("data", "they cannot be read; the node's own log says why") from None


def take_turn(
    configuration: str,
    assignment: Assignment,
    memory: NodeMemory,
    node: NodeWithData | None = None,
    device: str | None = None,
) -> Reply:
    from subbit.runtime.client import client_turn

    workplace = _workplace(configuration, assignment.job, node, device)
    workplace.memories = memory.of(assignment.job, personal=workplace.method("main").personal)
    return client_turn(workplace, assignment.order)


@lru_cache(maxsize=1)
def _workplace(configuration: str, job: str, node: NodeWithData | None = None, device: str | None = None) -> Workplace:
    """Built once per process: a simulated node takes many turns in one process, a real node one turn per process."""
    import torch

    from subbit.config.resolve import resolve_recorded
    from subbit.core.devices import find_device
    from subbit.runtime.own_nodes import NOTHING_OWN, node_problem
    from subbit.runtime.problem import build_problem
    from subbit.runtime.workplace import Workplace

    settings = resolve_recorded(tomllib.loads(configuration))
    torch.set_num_threads(settings.run.threads)
    if node is None:
        problem = build_problem(settings.run)
    else:
        problem = node_problem(settings.run, dict(node.config), NOTHING_OWN if node.own is None else node.own())
    where = find_device(device or settings.run.device)
    return Workplace(problem, settings, job, device=where, share=True)
