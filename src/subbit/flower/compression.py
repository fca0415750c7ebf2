"""Compression for existing Flower apps, both ways: one line on each side.

    app = ClientApp(mods=[compress(codec="eden", bits=1)])                        # client_app.py
    strategy = compress(codec="eden", bits=1).strategy(FedAvg(...))               # server_app.py

Down, the strategy sends what changed in the global arrays since what a node holds (`change_stream.py`), and the mod
passes plain arrays on. Up, the mod encodes the change of the arrays in a training reply relative to the received ones
into one frame; the strategy decodes it, adds it to the global arrays and passes the reply to the wrapped strategy,
which needs no changes. Any vector codec works (`subbit list codecs`).

    compress(codec="eden", bits=2)                                   unbiased, any number of bits per value
    compress(codec="topk", fraction=0.01, error_feedback=True)       what is dropped is added to the next round
    compress(codec="dense", dtype="bfloat16")                        half the bytes, almost no error
    compress(codec="eden", bits=1, down=None)                        replies only

Put the mod first in the list: Flower runs the first mod outermost, so the others (e.g. local differential privacy) see
the uncompressed arrays. The server decides whether to compress: without its request the mod does nothing, so clients
can be updated before the server. Both sides derive the codec's randomness from the round and the node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import Strategy

from subbit.codecs import Codec, Kind, Shared, Vector, make_codec, registered_codecs
from subbit.codecs.dense import Dense
from subbit.codecs.int8 import Int8
from subbit.codecs.topk import with_error_feedback
from subbit.core.errors import ConfigError, FrameError, ModelError
from subbit.core.randomness import derive_key
from subbit.flower.change_stream import DownCodecs
from subbit.flower.compression_order import (
    RECORD,
    BroadcastOrder,
    CompressionOrder,
    Fields,
    only_arrays,
    refusal,
    unfit,
)
from subbit.flower.held_arrays import HeldArrays, follow_broadcast
from subbit.flower.layout import Layout
from subbit.wire.channel import Channel, Part, Where, up
from subbit.wire.frame import EVERYONE

RESIDUAL = "subbit-residual"
"""Name of the record in the node's state that holds the residual of error feedback."""
NORMALISATION = ("*running_mean", "*running_var", "*num_batches_tracked")
"""BatchNorm statistics: small, and broken by noise (a variance must not become negative)."""
FIRST = Int8(chunk=256)
"""Of the first broadcast. Short chunks: a large value makes the others of its chunk coarse, and layers differ."""

Sends = Literal["weights", "updates"]
StrategyType = TypeVar("StrategyType", bound=Strategy)


def compress(
    codec: str = "eden",
    *,
    sends: Sends = "weights",
    error_feedback: bool = False,
    exclude: tuple[str, ...] = NORMALISATION,
    down: Codec[Vector] | Literal["same"] | None = "same",
    first: Codec[Vector] | None = None,
    **options: Any,
) -> Compression:
    """A client mod, and with `.strategy(...)` its server side. Use the same arguments on both sides.

    `sends` is what the ClientApp replies with: "weights" (the change relative to the received arrays is encoded) or
    "updates" (encoded as they are). `exclude` lists patterns of names that are sent uncompressed. `error_feedback`
    keeps what the codec lost in the node's state and adds it to the next reply; use it with biased codecs such as
    top-k. `down` is the codec of the changes of the global arrays, by default the same as up, e.g. `make_codec("eden",
    bits=2)`; None sends them as they are. `first` is the codec of the first broadcast, by default 8 bits a value, or
    float32 with `codec="dense"`. All other options are passed to the codec.
    """
    made = _of_vectors(make_codec(codec, **options))
    if sends not in get_args(Sends):
        raise ConfigError(f"sends={sends!r}: a ClientApp sends {' or '.join(get_args(Sends))}")
    if down is None:
        return Compression(made, sends, error_feedback, tuple(exclude), None)
    change = _of_vectors(made if down == "same" else down).contractive()
    start = first if first is not None else Dense() if change.name == Dense.name else FIRST
    return Compression(made, sends, error_feedback, tuple(exclude), DownCodecs(change, _of_vectors(start)))


def _of_vectors(codec: Codec[Any] | str) -> Codec[Vector]:
    if not isinstance(codec, Codec):
        raise ConfigError(f"{codec!r} is not a codec: make one with subbit.codecs.make_codec, or 'same', or None")
    if codec.kind is not Kind.VECTOR:
        vectors = ", ".join(known.name for known in registered_codecs() if known.kind is Kind.VECTOR)
        raise ConfigError(f"codec {codec.name!r} carries {codec.kind.value}; for arrays there are: {vectors}")
    return codec


@dataclass(frozen=True)
class Compression:
    """Both sides of compressed messages. Created by `compress`."""

    codec: Codec[Vector]
    sends: Sends
    error_feedback: bool
    exclude: tuple[str, ...]
    down: DownCodecs | None

    def strategy(self, strategy: StrategyType) -> StrategyType:
        """The strategy, extended to send changes and to decode replies. Apply this after all other wrappers."""
        from subbit.flower.compressed_strategy import compressed_strategy  # It imports this module.

        return compressed_strategy(strategy, self)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The client mod."""
        record = message.content.config_records.get(RECORD)
        if record is None:  # A server that does not request compression.
            return call_next(message, context)
        order = CompressionOrder.read(record)
        if order.compression != self.description:
            raise ConfigError(f"the server expects {order.compression}, the mod of this client is {self.description}")
        answer: Fields = {}
        if "lineage" in record:
            try:
                held = self._receive(message.content, context.state)
            except FrameError as error:
                before = HeldArrays.load(context.state, str(record["lineage"]))
                return Message(refusal(error, before.version if before is not None else 0), reply_to=message)
            order, answer = replace(order, plain=held.form.plain), held.said().fields()
        layout = Layout.of(only_arrays(message.content)[1], order.plain)
        del message.content[RECORD]  # The app sees the message of the wrapped strategy.
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        if order.replies:
            name, arrays = only_arrays(reply.content)
            try:
                vector = layout.flatten(arrays, self.sends == "weights")
                frame = self._encode(vector, layout, order.round_number, message.metadata.dst_node_id, context.state)
            except (ModelError, FrameError) as error:
                return Message(unfit(error, answer), reply_to=message)
            reply.content[name] = layout.rest(arrays)
            answer = {"frame": frame, "bytes-before": arrays.count_bytes(), **answer}
        reply.content[RECORD] = ConfigRecord(answer)
        return reply

    def _receive(self, content: RecordDict, state: RecordDict) -> HeldArrays:
        """Replace the changes in the message by the arrays that the app expects."""
        if self.down is None:
            raise FrameError("codec", "this mod does not take changes")
        order = BroadcastOrder.read(content.config_records[RECORD])
        name, sent = only_arrays(content)
        held = follow_broadcast(order, sent, HeldArrays.load(state, order.lineage), self.down)
        held.store(state)  # Before the app runs: if it fails, the node still holds this.
        content[name] = held.record()
        return held

    def _encode(self, vector: Vector, layout: Layout, round_number: int, node: int, state: RecordDict) -> bytes:
        channel, shared, where = self._channel(layout), _shared(layout, round_number, node), _where(round_number, node)
        if not self.error_feedback:
            return channel.pack(vector, where, shared)
        # Stored by template, so that the residual of another model is not used.
        place = channel.template.hex()
        stored = state.array_records.get(RESIDUAL, ArrayRecord())
        residual = stored[place].numpy() if place in stored else np.zeros_like(vector)
        encoded, residual = with_error_feedback(self.codec, vector, residual, shared)
        state[RESIDUAL] = ArrayRecord({place: Array(residual)})
        return channel.frame(encoded, where)

    def decode(self, frame: bytes, layout: Layout, round_number: int, node: int) -> Vector:
        """The vector in the frame of this node and round; raises `FrameError` for any other bytes."""
        shared = _shared(layout, round_number, node)
        vector: Vector = self._channel(layout).unpack(frame, _where(round_number, node), shared, maximum_examples=0)[0]
        return vector

    @property
    def description(self) -> str:
        """What both sides must agree on, readable in error messages."""
        down = f"; down {self.down.change!r}, first {self.down.first!r}" if self.down is not None else ""
        return f"{self.codec!r} of {self.sends}{down}"

    def _channel(self, layout: Layout) -> Channel:
        part = Part("arrays", self.codec, layout.template.size)
        return Channel(part, layout.template.digest(f"flower/{self.description}"))


def _shared(layout: Layout, round_number: int, node: int) -> Shared:
    return Shared(layout.template.size, key=derive_key(0, "flower-compress", round_number, node))


def _where(round_number: int, node: int) -> Where:
    """Node IDs have 64 bits but the header only 32: enough to detect mix-ups, not to identify a node."""
    return up(round_number, node % EVERYONE)
