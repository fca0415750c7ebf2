"""Server side of `compress`, before a round: writes into each message what its node needs, and how it is to reply."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from flwr.app import ArrayRecord, Message, RecordDict

from subbit.core.errors import FrameError
from subbit.flower.compression import Compression
from subbit.flower.compression_order import RECORD, CompressionOrder, count_bytes, only_arrays
from subbit.flower.layout import Layout, is_float
from subbit.flower.sent_changes import SentChanges

logger = logging.getLogger("flwr")  # Flower's logger, so that our messages appear among its own.


@dataclass(frozen=True)
class Asked:
    """What a node was asked in this round."""

    layout: Layout
    """Of the global arrays."""
    follows: bool
    """It was sent changes."""
    replies: bool
    """Its reply has arrays."""
    bytes_before: int
    bytes_after: int


class OrderWriter:
    def __init__(self, compression: Compression) -> None:
        self.compression = compression
        self.sent = SentChanges(compression.down) if compression.down is not None else None
        self._plain: set[str] = set()

    def write(self, round_number: int, messages: Iterable[Message], replies: bool) -> dict[int, Asked]:
        """Change the messages of a round, and say by node what it was asked.

        In evaluation (`replies` is false) there are no arrays in the replies, so messages that bring no changes are
        left as they are.
        """
        asked: dict[int, Asked] = {}
        layouts: dict[int, tuple[Layout, bool]] = {}
        written: dict[tuple[int, int], RecordDict] = {}
        waiting = [(message, message.content) for message in messages]  # Which keeps them, and so their ids.
        for message, content in waiting:
            if not replies and (self.sent is None or len(content.array_records) != 1):
                continue
            _, record = only_arrays(content)
            if id(record) not in layouts:  # Most strategies send the same record to all clients.
                layouts[id(record)] = self._broadcast(record, first=not layouts)
            layout, follows = layouts[id(record)]
            if not (replies or follows):
                continue
            node = message.metadata.dst_node_id
            confirmed = self.sent.confirmed.get(node, 0) if self.sent is not None else 0
            place = id(content), confirmed
            if place not in written:  # Nodes that hold the same are sent the same.
                order = CompressionOrder(round_number, self.compression.description, layout.plain, replies)
                written[place] = self._written(content, order, confirmed, follows)
            message.content = written[place]
            asked[node] = Asked(layout, follows, replies, count_bytes(content), count_bytes(message.content))
        return asked

    def _broadcast(self, record: ArrayRecord, first: bool) -> tuple[Layout, bool]:
        """How nodes see this record, and whether it is sent as changes.

        All nodes hold the same, so only one record of a round can be: others, of strategies that send different nodes
        different arrays, travel as they are.
        """
        self._note_plain(record)
        layout = Layout.of(record, self._plain)
        if self.sent is None or not first:
            return layout, False
        try:
            self.sent.advance(record, layout)
        except FrameError as error:
            logger.warning("the global arrays are sent uncompressed: %s: %s", error.cause, error)
            return layout, False
        return layout, True

    def _note_plain(self, record: ArrayRecord) -> None:
        """Arrays once plain stay plain: averaging turns integers into floats, which must still be sent plain."""
        for name, array in record.items():
            if not is_float(array) or any(fnmatchcase(name, pattern) for pattern in self.compression.exclude):
                self._plain.add(name)

    def _written(self, content: RecordDict, order: CompressionOrder, confirmed: int, follows: bool) -> RecordDict:
        if self.sent is None or not follows:
            return RecordDict({**content, RECORD: order.record()})
        broadcast, plain = self.sent.order(confirmed)
        return RecordDict({**content, only_arrays(content)[0]: plain, RECORD: order.record(broadcast)})
