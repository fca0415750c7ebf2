"""Compression for existing Flower apps: one line on each side.

    app = ClientApp(mods=[compress(codec="eden", bits=1)])                        # client_app.py
    strategy = compress(codec="eden", bits=1).strategy(FedAvg(...))               # server_app.py

The mod computes the change of the arrays in a training reply relative to the received ones, encodes it into one frame
and sends the frame instead of the arrays. The strategy decodes it, adds it to the broadcast arrays and passes the reply
to the wrapped strategy, which needs no changes. Any vector codec works (`subbit list codecs`).

    compress(codec="eden", bits=2)                                   unbiased, any number of bits per value
    compress(codec="topk", fraction=0.01, error_feedback=True)       what is dropped is added to the next round
    compress(codec="dense", dtype="bfloat16")                        half the bytes, almost no error

Put the mod first in the list: Flower runs the first mod outermost, so the others (e.g. local differential privacy) see
the uncompressed arrays. The server decides whether to compress: without its request the mod does nothing, so clients
can be updated before the server. Both sides derive the codec's randomness from the round and the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import Strategy

from subbit.codecs import Codec, Kind, Shared, Vector, make_codec, registered_codecs
from subbit.codecs.topk import with_error_feedback
from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key
from subbit.flower.layout import Layout
from subbit.wire.channel import Channel, Part, Where, up
from subbit.wire.frame import EVERYONE

RECORD = "subbit"
"""Name of our ConfigRecord: the request on the downlink, the frame on the uplink."""
RESIDUAL = "subbit-residual"
"""Name of the record in the node's state that holds the residual of error feedback."""
NORMALISATION = ("*running_mean", "*running_var", "*num_batches_tracked")
"""BatchNorm statistics: small, and broken by noise (a variance must not become negative)."""

Sends = Literal["weights", "updates"]
StrategyType = TypeVar("StrategyType", bound=Strategy)


def compress(
    codec: str = "eden",
    *,
    sends: Sends = "weights",
    error_feedback: bool = False,
    exclude: tuple[str, ...] = NORMALISATION,
    **options: Any,
) -> Compression:
    """A client mod, and with `.strategy(...)` its server side. Use the same arguments on both sides.

    `sends` is what the ClientApp replies with: "weights" (the change relative to the received arrays is encoded) or
    "updates" (encoded as they are). `exclude` lists patterns of names that are sent uncompressed. `error_feedback`
    keeps what the codec lost in the node's state and adds it to the next reply; use it with biased codecs such as
    top-k. All other options are passed to the codec.
    """
    made = make_codec(codec, **options)
    if made.kind is not Kind.VECTOR:
        vectors = ", ".join(known.name for known in registered_codecs() if known.kind is Kind.VECTOR)
        raise ConfigError(f"codec {codec!r} carries {made.kind.value}; for arrays there are: {vectors}")
    if sends not in get_args(Sends):
        raise ConfigError(f"sends={sends!r}: a ClientApp sends {' or '.join(get_args(Sends))}")
    return Compression(made, sends, error_feedback, tuple(exclude))


@dataclass(frozen=True)
class CompressionOrder:
    """The server's request to the mod, in a record next to the arrays."""

    round_number: int
    compression: str
    plain: tuple[str, ...]
    """Names of the arrays that are sent uncompressed."""

    def record(self) -> ConfigRecord:
        return ConfigRecord({"round": self.round_number, "compression": self.compression, "plain": list(self.plain)})

    @classmethod
    def read(cls, record: ConfigRecord) -> CompressionOrder:
        round_number, compression, plain = (record.get(name) for name in ("round", "compression", "plain"))
        names = tuple(name for name in plain if isinstance(name, str)) if isinstance(plain, list) else ()
        if not isinstance(round_number, int) or not isinstance(compression, str) or list(names) != plain:
            raise ConfigError("the record 'subbit' of this message was not written by a compressed strategy")
        return cls(round_number, compression, names)


@dataclass(frozen=True)
class Compression:
    """Both sides of a compressed reply. Created by `compress`."""

    codec: Codec[Vector]
    sends: Sends
    error_feedback: bool
    exclude: tuple[str, ...]

    def strategy(self, strategy: StrategyType) -> StrategyType:
        """The strategy, extended to decode replies before it aggregates them. Apply this after all other wrappers."""
        from subbit.flower.compressed_strategy import compressed_strategy  # It imports this module.

        return compressed_strategy(strategy, self)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The client mod."""
        record = message.content.config_records.get(RECORD)
        if record is None:  # Evaluation, or a server that does not request compression.
            return call_next(message, context)
        order = CompressionOrder.read(record)
        if order.compression != self.description:
            raise ConfigError(f"the server expects {order.compression}, the mod of this client is {self.description}")
        layout = Layout.of(only_arrays(message.content)[1], order.plain)
        del message.content[RECORD]  # The app sees the message of the wrapped strategy.
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        name, arrays = only_arrays(reply.content)
        vector = layout.flatten(arrays, self.sends == "weights")
        frame = self._encode(vector, layout, order.round_number, message.metadata.dst_node_id, context.state)
        reply.content[name] = layout.rest(arrays)
        reply.content[RECORD] = ConfigRecord({"frame": frame, "bytes-before": arrays.count_bytes()})
        return reply

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
        return f"{self.codec!r} of {self.sends}"

    def _channel(self, layout: Layout) -> Channel:
        part = Part("arrays", self.codec, layout.template.size)
        return Channel(part, layout.template.digest(f"flower/{self.description}"))


def _shared(layout: Layout, round_number: int, node: int) -> Shared:
    return Shared(layout.template.size, key=derive_key(0, "flower-compress", round_number, node))


def _where(round_number: int, node: int) -> Where:
    """Node IDs have 64 bits but the header only 32: enough to detect mix-ups, not to identify a node."""
    return up(round_number, node % EVERYONE)


def only_arrays(content: RecordDict) -> tuple[str, ArrayRecord]:
    """Name and record of the only ArrayRecord in a message."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise ConfigError(f"a compressed message holds one ArrayRecord, this one {len(records)}")
    return records[0]
