"""Server side of `compress`: a Flower strategy that decodes replies before it aggregates them.

Replies are decoded one at a time and checked against the broadcast, by the rules of `subbit.wire.frame`. An invalid
reply is left out, logged and counted by cause, and the round continues. The wrapped strategy receives a list of
ordinary replies, so it needs as much memory as without compression.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from subbit.core.errors import ConfigError, FrameError
from subbit.flower.compression import RECORD, Compression, CompressionOrder, StrategyType, only_arrays
from subbit.flower.layout import Layout, is_float

logger = logging.getLogger("flwr")  # Flower's logger, so that our messages appear among its own.


class ReplyDecoder:
    """Keeps the broadcast of this round and decodes the replies to it."""

    def __init__(self, compression: Compression) -> None:
        self.compression = compression
        self.refused: Counter[str] = Counter()
        """Replies left out, by cause, over the whole run."""
        self._plain: set[str] = set()
        self._asked: dict[int, tuple[Layout, int]] = {}
        self._round = 0

    def ask(self, round_number: int, messages: Iterable[Message]) -> list[Message]:
        """The same messages, each with the instruction to compress."""
        asked = list(messages)
        self._asked, self._round = {}, round_number
        layouts: dict[int, Layout] = {}
        for message in asked:
            _, record = only_arrays(message.content)
            if id(record) not in layouts:  # Most strategies send the same record to all clients.
                self._note_plain(record)
                layouts[id(record)] = Layout.of(record, self._plain)
            layout = layouts[id(record)]
            order = CompressionOrder(round_number, self.compression.description, layout.plain)
            message.content[RECORD] = order.record()
            self._asked[message.metadata.dst_node_id] = layout, record.count_bytes()
        return asked

    def _note_plain(self, record: ArrayRecord) -> None:
        """Arrays once plain stay plain: averaging turns integers into floats, which must still be sent plain."""
        for name, array in record.items():
            if not is_float(array) or any(fnmatchcase(name, pattern) for pattern in self.compression.exclude):
                self._plain.add(name)

    def open(self, replies: Iterable[Message]) -> tuple[list[Message], MetricRecord]:
        """The replies as they would be without compression, and the metrics of this round."""
        opened, before, after, bad = [], 0, 0, 0
        for reply in replies:
            if reply.has_error():
                opened.append(reply)
                continue
            layout, sent_bytes = self._asked.pop(reply.metadata.src_node_id, (None, 0))
            before += _bytes_before(reply, sent_bytes)
            after += _uplink_bytes(reply)
            try:
                if layout is None:
                    raise FrameError("client", "this node was not asked, or has answered already")
                self._open_one(reply, layout)
                opened.append(reply)
            except FrameError as error:
                bad += 1
                self.refused[error.cause] += 1
                logger.warning("reply of node %d left out: %s: %s", reply.metadata.src_node_id, error.cause, error)
        return opened, MetricRecord(
            {"subbit-bytes-before": before, "subbit-bytes-after": after, "subbit-bad-frames": bad}
        )

    def _open_one(self, reply: Message, layout: Layout) -> None:
        frame = reply.content.config_records.get(RECORD, ConfigRecord()).get("frame")
        if not isinstance(frame, bytes):
            raise FrameError("not-a-frame", "no frame in the reply: the ClientApp needs compress(...) among its mods")
        if len(reply.content.array_records) != 1:
            raise FrameError("template", f"a reply holds one ArrayRecord, not {len(reply.content.array_records)}")
        name, rest = only_arrays(reply.content)
        vector = self.compression.decode(frame, layout, self._round, reply.metadata.src_node_id)
        reply.content[name] = layout.rebuild(vector, rest, self.compression.sends == "weights")
        del reply.content[RECORD]


def _bytes_before(reply: Message, sent_bytes: int) -> int:
    """Uncompressed size of the arrays as reported by the client, at most the size of the broadcast.

    Some strategies broadcast float64 where clients reply in float32.
    """
    said = reply.content.config_records.get(RECORD, ConfigRecord()).get("bytes-before")
    return min(said, sent_bytes) if isinstance(said, int) and said >= 0 else sent_bytes


def _uplink_bytes(reply: Message) -> int:
    """Bytes of the arrays and of all accompanying byte strings, as received."""
    arrays = sum(record.count_bytes() for record in reply.content.array_records.values())
    values = (value for record in reply.content.config_records.values() for value in record.values())
    return arrays + sum(len(value) for value in values if isinstance(value, bytes))


class CompressedStrategy(Strategy):
    """Mixed in before another strategy class by `compressed_strategy`, so that `super()` is the wrapped strategy."""

    subbit: ReplyDecoder

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)  # type: ignore[safe-super]
        return self.subbit.ask(server_round, messages)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        opened, ours = self.subbit.open(replies)
        arrays, metrics = super().aggregate_train(server_round, opened)  # type: ignore[safe-super]
        return arrays, MetricRecord({**(metrics or {}), **ours})


def compressed_strategy(strategy: StrategyType, compression: Compression) -> StrategyType:
    """A copy of the strategy, with `CompressedStrategy` inserted before its class.

    A subclass instead of a wrapper: a strategy may override `start` or any other method, and `isinstance` still works.
    """
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"{type(strategy).__name__} is not a strategy of flwr.serverapp.strategy")
    if isinstance(strategy, CompressedStrategy):
        raise ConfigError("this strategy is compressed already")
    kind = type(strategy)
    compressed = copy.copy(strategy)
    compressed.__class__ = type(f"Compressed{kind.__name__}", (CompressedStrategy, kind), {})
    cast(CompressedStrategy, compressed).subbit = ReplyDecoder(compression)
    return compressed
