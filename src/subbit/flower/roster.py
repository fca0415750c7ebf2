"""Which node holds which client's data. Nodes say so themselves, once each, when they are first seen.

A node is started with `--node-config "partition-id=K num-partitions=N"`; client K of the job is the node that
announces K.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from subbit.errors import ConfigError, QuorumError
from subbit.flower.records import printable

POLL_SECONDS = 0.25
log = logging.getLogger("flwr")  # Flower's own log, which `flwr run --stream` shows.


class Roster:
    def __init__(self, grid: Grid, clients: int, deadline: float) -> None:
        self._grid, self._clients, self._deadline = grid, clients, deadline
        self._node_of: dict[int, int] = {}
        self._asked: dict[int, str] = {}
        """Nodes that were asked and have not answered, with the message."""
        self._online: set[int] = set()

    def node_of(self, client: int) -> int | None:
        """The node of that client, if there is one and it is connected."""
        node = self._node_of.get(client)
        return node if node in self._online else None

    def wait(self, needed: Sequence[int], quorum: float) -> None:
        """Wait until all of these clients have a node; after the deadline a quorum of them is enough."""
        end = time.monotonic() + self._deadline
        while True:
            self.refresh()
            present = [client for client in needed if self.node_of(client) is not None]
            if len(present) == len(needed):
                return
            if time.monotonic() >= end:
                break
            time.sleep(POLL_SECONDS)
        least = math.ceil(quorum * len(needed))
        missing = [client for client in needed if client not in present]
        words = (
            f"{len(present)} of {len(needed)} clients have a node after {self._deadline:g} s (deadline); missing are "
            f"the partition-ids {', '.join(map(str, missing[:10]))}{', ...' if len(missing) > 10 else ''}"
        )
        if len(present) < least:
            raise QuorumError(
                f"{words}. {least} are needed (quorum={quorum}). Start the missing nodes: flower-supernode ... "
                f'--node-config "partition-id={missing[0]} num-partitions={self._clients}"'
            )
        log.warning("%s. Going on without them", words)

    def refresh(self) -> None:
        """Who is connected; ask those who are new, take the answers that are there. Waits for nobody."""
        self._online = set(self._grid.get_node_ids())
        known = set(self._node_of.values()) | set(self._asked)
        for node in sorted(self._online - known):
            question = Message(RecordDict(), node, MessageType.QUERY, ttl=self._deadline + 60)
            for message_id in self._grid.push_messages([question]):
                self._asked[node] = message_id
        if not self._asked:
            return
        nodes = {message_id: node for node, message_id in self._asked.items()}
        for answer in self._grid.pull_messages(list(nodes)):
            asked = nodes.get(answer.metadata.reply_to_message_id)
            if asked is not None:
                del self._asked[asked]
                self._enter(asked, answer)

    def _enter(self, node: int, answer: Message) -> None:
        if answer.has_error():
            # Asked again at the next refresh, if it is still there.
            log.warning("Node %s did not say who it is: %s", node, printable(answer.error.reason or ""))
            return
        fields = answer.content.config_records.get("node", ConfigRecord())
        partition, partitions = fields.get("partition-id"), fields.get("num-partitions")
        if type(partition) is not int or not 0 <= partition < self._clients or partitions != self._clients:
            raise ConfigError(
                f"node {node} announces partition-id {partition!r} of {partitions!r}, but the job has "
                f'clients={self._clients}: start it with --node-config "partition-id=K num-partitions={self._clients}"'
            )
        before = self._node_of.get(partition)
        if before is not None and before in self._online:
            raise ConfigError(f"nodes {before} and {node} both announce partition-id {partition}: end one of them")
        self._node_of[partition] = node
