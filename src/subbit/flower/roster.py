"""Tracks which node holds which client's data. Each node announces this once, when it connects.

A node is started with `--node-config "partition-id=K num-partitions=N"`; the node that announces K is client K of the
job. A node whose announcement is invalid is rejected, logged once, and asked again after a while, since it may have
been restarted with the right arguments.

The first node to announce a client holds it for as long as Flower lists the node as connected, however slow it is: no
other node can take over the client of a connected node. A second node that announces the same client waits, and
replaces the first when that one is gone. A restarted node with a new identity (as happens without node keys) is
therefore accepted as soon as Flower misses the heartbeats of the old one, which takes up to a minute.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from subbit.core.errors import QuorumError
from subbit.flower.announcement import Announced, Expected, RefusedError, read_announcement
from subbit.flower.mailbox import Mailbox
from subbit.flower.records import printable

POLL_SECONDS = 0.25
ASK_AGAIN_SECONDS = 60.0
AT_ONCE = 64
"""Number of nodes asked and read per refresh, so that a round never waits for it, however many there are."""
MOST_LINES = 100
"""Number of rejections that are logged, so that nodes reconnecting under new identities cannot fill the server's
disk."""
log = logging.getLogger("flwr")  # Flower's log, which `flwr run --stream` shows.


class Roster:
    def __init__(self, grid: Grid, expected: Expected, deadline: float, known: dict[str, int] | None = None) -> None:
        """`known` is the client that each node with its own data is, by its name; nodes are added as they connect."""
        self._grid, self._expected, self._deadline = grid, expected, deadline
        self._known = {} if known is None else known
        self.examples: dict[int, int] = {}
        """Number of training examples of each client, as announced by a node with its own data."""
        self._mailbox = Mailbox(grid)
        self._online: set[int] = set()
        self._ask_at: dict[int, float] = {}
        """Nodes to ask, and when."""
        self._asked: dict[int, str] = {}
        """Nodes that were asked and have not answered yet, with the message."""
        self._announced: dict[int, int] = {}
        """The client announced by each node, in order of announcement."""
        self._node_of: dict[int, int] = {}
        """The node that holds each client. Kept while it is disconnected, until another one replaces it."""
        self._reasons: dict[int, str] = {}
        self.refused: Counter[str] = Counter()
        """Number of rejected nodes by cause."""

    def node_of(self, client: int) -> int | None:
        """The node of that client, if it is connected."""
        node = self._node_of.get(client)
        return node if node in self._online else None

    def present(self) -> list[int]:
        """The clients whose nodes are connected."""
        return sorted(client for client, node in self._node_of.items() if node in self._online)

    def nodes(self) -> list[int]:
        """The connected nodes that hold a client."""
        return [node for node in self._node_of.values() if node in self._online]

    def wait(self, needed: Sequence[int], quorum: float, enough: int | None = None) -> None:
        """Wait until all of these clients, or `enough` of them, have a node; after the deadline a quorum is enough."""
        end = time.monotonic() + self._deadline
        while True:
            self.refresh()
            present = [client for client in needed if self.node_of(client) is not None]
            if len(present) >= (len(needed) if enough is None else min(enough, len(needed))):
                return
            if time.monotonic() >= end:
                break
            time.sleep(POLL_SECONDS)
        least = math.ceil(quorum * len(needed))
        missing = [client for client in needed if client not in present]
        if self._expected.own_data:
            self._require_nodes(len(present), least, quorum)
            return
        words = (
            f"{len(present)} of {len(needed)} clients have a node after {self._deadline:g} s (deadline); missing are "
            f"the partition-ids {', '.join(map(str, missing[:10]))}{', ...' if len(missing) > 10 else ''}"
        )
        if len(present) < least:
            refused = "".join(f". Refused: node {node} {reason}" for node, reason in list(self._reasons.items())[:3])
            raise QuorumError(
                f"{words}. {least} are needed (quorum={quorum}). Start the missing nodes: flower-supernode ... "
                f'--node-config "partition-id={missing[0]} num-partitions={self._expected.clients}"{refused}'
            )
        log.warning("%s. Going on without them", words)

    def _require_nodes(self, present: int, least: int, quorum: float) -> None:
        words = f"{present} of {self._expected.clients} nodes are connected after {self._deadline:g} s (deadline)"
        if present < least:
            refused = "".join(f". Refused: node {node} {reason}" for node, reason in list(self._reasons.items())[:3])
            raise QuorumError(
                f"{words}, {least} are needed (quorum={quorum}). Start more: flower-supernode ... --node-config "
                f"'data=\"FOLDER OR FILE\"'{refused}"
            )
        log.warning("%s. Going on with them; others may join later", words)

    def refresh(self) -> None:
        """Update the connected nodes, ask new ones, read available answers. Never blocks."""
        before, self._online = self._online, set(self._grid.get_node_ids())
        now = time.monotonic()
        for node in before - self._online:
            for known in (self._ask_at, self._asked, self._announced, self._reasons):
                known.pop(node, None)
        self._ask_at |= dict.fromkeys(self._online - before, now)
        due = sorted((at, node) for node, at in self._ask_at.items() if at <= now and node not in self._asked)
        for _, node in due[:AT_ONCE]:
            question = Message(RecordDict(), node, MessageType.QUERY, ttl=self._deadline + 60)
            message_id = self._mailbox.push(question)
            if message_id is not None:
                self._asked[node] = message_id
                del self._ask_at[node]
        nodes = {message_id: node for node, message_id in list(self._asked.items())[:AT_ONCE]}
        for node in nodes.values():  # Nodes that do not answer now are last in the queue next time.
            self._asked[node] = self._asked.pop(node)
        for message_id, answer in self._mailbox.pull(list(nodes)):
            node = nodes[message_id]
            del self._asked[node]
            try:
                self._enter(node, answer)
            except RefusedError as error:
                self._refuse(node, error)
        self._succeed()

    def _enter(self, node: int, answer: Message | None) -> None:
        self._announced.pop(node, None)
        try:
            if answer is None:
                raise RefusedError("record", "did not say who it is: its answer cannot be read")
            if answer.has_error():
                raise RefusedError("error", f"did not say who it is: {printable(answer.error.reason or '')}")
            announced = read_announcement(answer, self._expected)
            client = self._number(node, announced) if self._expected.own_data else announced.client
        except RefusedError:
            self._release(node, None)
            raise
        self._release(node, client)
        self._announced[node] = client
        holder = self._node_of.setdefault(client, node)
        if holder != node and holder in self._online:
            who = f"the name {announced.name!r}" if self._expected.own_data else f"partition-id {client}"
            raise RefusedError("taken", f"announces {who}, which node {holder} holds: it waits until that one is gone")
        self._reasons.pop(node, None)
        self.examples[client] = announced.examples

    def _number(self, node: int, announced: Announced) -> int:
        """The client that this node is: the one it was before, or the next number."""
        name = announced.name or f"node {node}"
        if name not in self._known:
            if len(self._known) >= self._expected.clients:
                raise RefusedError(
                    "full", f"has no place: there are clients={self._expected.clients}, all of them known nodes"
                )
            self._known[name] = len(self._known)
            log.info("%s is client %s, with %s examples", name, self._known[name], announced.examples)
        return self._known[name]

    def _release(self, node: int, client: int | None) -> None:
        """Remove the node from all clients but this one: it may have been restarted with another number."""
        self._node_of = {held: holder for held, holder in self._node_of.items() if holder != node or held == client}

    def _succeed(self) -> None:
        """A waiting node replaces a disconnected one, in order of announcement."""
        for node, client in self._announced.items():
            holder = self._node_of.get(client)
            if holder != node and holder not in self._online:
                log.info("Node %s takes the place of node %s, which held client %s", node, holder, client)
                self._node_of[client] = node
                self._reasons.pop(node, None)

    def _refuse(self, node: int, error: RefusedError) -> None:
        self._ask_at[node] = time.monotonic() + ASK_AGAIN_SECONDS
        if self._reasons.get(node) == str(error):
            return
        self._reasons[node] = str(error)
        self.refused[error.cause] += 1
        if self.refused.total() <= MOST_LINES:
            log.warning("Refused (%s): node %s %s", error.cause, node, error)
        if self.refused.total() == MOST_LINES:
            log.warning("More refused nodes are counted and not logged")
