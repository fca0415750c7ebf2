"""A grid whose nodes live in this process: Flower's records and serialisation, none of its processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from subbit.config.resolve import Settings, write_toml
from subbit.flower.node import make_client_app
from subbit.flower.node_memory import NodeMemory
from tests.flower.loopback import through_the_wire

Answer = Callable[[Message, Message], Message | None]
"""Order and honest reply to what really comes back; nothing stands for a node that never answers."""


def honest(order: Message, reply: Message) -> Message | None:
    return reply


class FakeGrid:
    """Node 100 + K holds partition K. `answers` says how nodes misbehave in training, by partition.

    `join` adds a node that announces what it likes, `kill` ends one that Flower lists as connected for a while, and
    `unreadable` nodes make Flower raise when it opens their answers.
    """

    def __init__(self, settings: Settings, folder: Path, answers: dict[int, Answer] | None = None) -> None:
        self.clients, self.folder, self.answers = settings.run.clients, folder, answers or {}
        self.app = make_client_app(lambda context: write_toml(settings), self.memory)
        self.online = {100 + client for client in range(self.clients)}
        self.joined: dict[int, dict[str, Any]] = {}
        self.announced: dict[int, RecordDict] = {}
        self.unreadable: set[int] = set()
        self.listed: dict[int, int] = {}
        self.unanswered: set[str] = set()
        self.quota: dict[int, float] = {}
        self.waiting: dict[str, Message] = {}
        self.pulled: list[int] = []
        self.pushed: list[tuple[str, int]] = []

    def join(self, node: int, announced: RecordDict | None = None, **node_config: Any) -> None:
        """A node with this configuration, or with an announcement of its own making."""
        self.online.add(node)
        self.joined[node] = {name.replace("_", "-"): value for name, value in node_config.items()}
        if announced is not None:
            self.announced[node] = announced

    def kill(self, node: int, listed: int) -> None:
        """It answers nothing any more, and is listed so many times."""
        self.listed[node] = listed

    def memory(self, context: Context) -> NodeMemory:
        """A disk per client: who takes over a client's partition on the same machine finds its files."""
        disk = 100 + int(context.node_config["partition-id"])
        return NodeMemory(self.folder / "memory" / str(disk), self.quota.get(disk, math.inf))

    def get_node_ids(self) -> Iterable[int]:
        for node, times in list(self.listed.items()):
            self.listed[node] = times - 1
            if times == 0:
                del self.listed[node]
                self.online.discard(node)
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identities = []
        for message in messages:
            arrived = through_the_wire(message)
            self.waiting[arrived.metadata.message_id] = arrived
            identities.append(arrived.metadata.message_id)
            self.pushed.append((arrived.metadata.message_type, arrived.metadata.dst_node_id))
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        # The last first: the order in which nodes answer must not matter.
        names = [name for name in reversed(list(message_ids)) if name in self.waiting]
        alive = [name for name in names if self.waiting[name].metadata.dst_node_id not in self.listed]
        replies = [self._answer(self.waiting.pop(name)) for name in alive]
        found = [reply for reply in replies if reply is not None]
        self.pulled.append(len(found))
        return found

    def _answer(self, order: Message) -> Message | None:
        node = order.metadata.dst_node_id
        if node not in self.online:
            return Message(Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable"), reply_to=order)
        if order.metadata.message_type in self.unanswered:
            return None
        if node in self.unreadable:
            raise ValueError("as Flower does when it puts rubbish together")
        if node in self.announced:
            return through_the_wire(Message(self.announced[node], reply_to=order))
        configuration = self.joined.get(node, {"partition-id": node - 100, "num-partitions": self.clients})
        try:
            reply = self.app(order, Context(1, node, configuration, RecordDict(), {}))
        except Exception as error:
            return Message(Error(2, str(error)), reply_to=order)
        if order.metadata.message_type == MessageType.TRAIN:
            changed = self.answers.get(int(configuration["partition-id"]), honest)(order, reply)
            if changed is None:
                return None
            reply = changed
        return through_the_wire(reply)
