"""Server side of `compress`, after a round: decodes the replies.

Replies are decoded one at a time and checked against the broadcast, by the rules of `subbit.wire.frame`. An invalid
reply, or one that says that its node cannot follow the broadcast, is left out, logged and counted by cause, and the
round continues. What the wrapped strategy gets is relative to the global arrays, not to what the node held: so what a
broadcast left out stays part of the global arrays, and is sent with the next change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MetricRecord

from subbit.core.errors import FrameError
from subbit.flower.compression import Compression
from subbit.flower.compression_order import RECORD, Held, count_bytes, only_arrays, read_refusal
from subbit.flower.order_writer import Asked, OrderWriter, logger

NEEDS_MOD = "the ClientApp needs compress(...) among its mods"


class ReplyDecoder:
    """Both halves of the server: `ask` before a round, `open` after it."""

    def __init__(self, compression: Compression) -> None:
        self.compression = compression
        self.refused: Counter[str] = Counter()
        """Replies left out, by cause, over the whole run."""
        self.writer = OrderWriter(compression)
        self.sent = self.writer.sent
        self._asked: dict[int, Asked] = {}
        self._round = 0
        self._hinted = False

    def ask(self, round_number: int, messages: Iterable[Message], replies: bool = True) -> list[Message]:
        """The same messages, each with its order."""
        asked = list(messages)
        self._round, self._asked = round_number, self.writer.write(round_number, asked, replies)
        return asked

    def open(self, replies: Iterable[Message]) -> tuple[list[Message], MetricRecord]:
        """The replies as they would be without compression, and the metrics of this round."""
        opened, before, after, bad = [], 0, 0, 0
        down = [(one.bytes_before, one.bytes_after) for one in self._asked.values()]
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                self._hint(node)
                opened.append(reply)
                continue
            asked = self._asked.pop(node, None)
            before += _bytes_before(reply, asked)
            after += count_bytes(reply.content)
            try:
                if asked is None:
                    raise FrameError("client", "this node was not asked, or has answered already")
                self._open_one(reply, asked)
                opened.append(reply)
            except FrameError as error:
                bad += 1
                self.refused[error.cause] += 1
                logger.warning("reply of node %d left out: %s: %s", node, error.cause, error)
        return opened, MetricRecord(
            {
                "subbit-up-bytes-before": before,
                "subbit-up-bytes-after": after,
                "subbit-down-bytes-before": sum(plain for plain, _ in down),
                "subbit-down-bytes-after": sum(compressed for _, compressed in down),
                "subbit-bad-frames": bad,
            }
        )

    def open_evaluation(self, replies: Iterable[Message]) -> tuple[list[Message], MetricRecord | None]:
        """The same for evaluation, of which there are no metrics if nothing was compressed."""
        arrived = list(replies)
        if not self._asked:
            return arrived, None
        ours = [reply.has_content() and (reply.metadata.src_node_id in self._asked) for reply in arrived]
        opened, metrics = self.open(reply for reply, is_ours in zip(arrived, ours, strict=True) if is_ours)
        return [reply for reply, is_ours in zip(arrived, ours, strict=True) if not is_ours] + opened, metrics

    def _open_one(self, reply: Message, asked: Asked) -> None:
        answer, node = reply.content.config_records.get(RECORD, ConfigRecord()), reply.metadata.src_node_id
        if not answer:
            raise FrameError("not-a-frame", f"no answer to the compression in the reply: {NEEDS_MOD}")
        if self.sent is not None and asked.follows:
            refused = read_refusal(answer)
            if refused is not None:
                self.sent.refused(node, refused.cause, Held.read(answer))
                raise refused
            self.sent.confirm(node, Held.read(answer))
        if asked.replies:
            unfit = read_refusal(answer, "unfit")
            if unfit is not None:
                raise unfit
            self._decode(reply, answer.get("frame"), asked)
        del reply.content[RECORD]

    def _decode(self, reply: Message, frame: object, asked: Asked) -> None:
        if not isinstance(frame, bytes):
            raise FrameError("not-a-frame", f"no frame in the reply: {NEEDS_MOD}")
        if len(reply.content.array_records) != 1:
            raise FrameError("template", f"a reply holds one ArrayRecord, not {len(reply.content.array_records)}")
        name, rest = only_arrays(reply.content)
        vector = self.compression.decode(frame, asked.layout, self._round, reply.metadata.src_node_id)
        reply.content[name] = asked.layout.rebuild(vector, rest, self.compression.sends == "weights")

    def _hint(self, node: int) -> None:
        """An app without the mod gets a message without arrays, and fails in its own words."""
        if self.sent is not None and not self.sent.confirmed and not self._hinted:
            self._hinted = True
            logger.warning("node %d failed before any node confirmed a compressed message: %s", node, NEEDS_MOD)


def _bytes_before(reply: Message, asked: Asked | None) -> int:
    """Uncompressed size of the arrays as reported by the client, at most the size of the broadcast.

    Some strategies broadcast float64 where clients reply in float32.
    """
    if asked is None or not asked.replies:
        return 0
    said = reply.content.config_records.get(RECORD, ConfigRecord()).get("bytes-before")
    return min(said, asked.bytes_before) if isinstance(said, int) and said >= 0 else asked.bytes_before
