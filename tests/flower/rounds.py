"""Rounds of a compressed strategy with nodes that fail in every way a node can, message by message."""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from subbit.flower.compression import Compression
from subbit.flower.held_arrays import HeldArrays
from subbit.flower.layout import Layout
from subbit.flower.reply_decoder import ReplyDecoder
from subbit.flower.sent_changes import SentChanges
from tests.flower.loopback import NODES, Arrays, as_arrays, as_record, start_arrays, through_the_wire


class Fate(Enum):
    ANSWERS = "answers"
    REPLY_LOST = "the node holds more than it could confirm"
    APP_FAILS = "an error; a SuperNode keeps the state"
    APP_FAILS_IN_A_SIMULATION = "an error; Ray's copy of the state is dropped"
    FORGETS = "its memory is gone before the message arrives"
    STATE_UNDONE = "it answers, and its state is that of the round before"


class Rounds:
    def __init__(self, made: Compression) -> None:
        self.decoder = ReplyDecoder(made)
        self.arrays = start_arrays()
        self.states = {node: RecordDict() for node in NODES}
        self.seen: dict[int, Arrays] = {}
        self.opened: list[Message] = []
        self._answered: dict[int, int] = {}
        self._generator = np.random.default_rng(0)
        self._fails = False
        self._app = ClientApp(mods=[made])
        self._app.train()(self._train)
        self._app.evaluate()(self._evaluate)

    @property
    def sent(self) -> SentChanges:
        assert self.decoder.sent is not None
        return self.decoder.sent

    def target(self) -> np.ndarray:
        return Layout.of(as_record(self.arrays), self.decoder.writer._plain).vector

    def step(self, number: int, trains: bool, moved: bool, fates: dict[int, Fate]) -> set[int]:
        """One round with these nodes; those whose reply the strategy got."""
        if moved:
            self._move()
        record, kind = as_record(self.arrays), "train" if trains else "evaluate"
        content = RecordDict({"arrays": record, "config": ConfigRecord({"server-round": number})})
        messages = self.decoder.ask(number, [Message(content, node, kind) for node in fates], replies=trains)
        replies = [reply for message in messages for reply in self._deliver(message, fates)]
        self.opened, _ = self.decoder.open(replies) if trains else self.decoder.open_evaluation(replies)
        answered = {reply.metadata.src_node_id for reply in self.opened}
        for node in answered:
            if fates[node] is Fate.STATE_UNDONE:
                self._answered.pop(node, None)
            else:
                self._answered[node] = self.sent.version
        return answered

    def check_nodes(self) -> None:
        """What a node that answered holds is what the server held at that version."""
        for node, version in self._answered.items():
            if version != self.sent.version or self.sent.confirmed.get(node) != version:
                continue
            held = HeldArrays.load(self.states[node], self.sent._stream.lineage)  # type: ignore[union-attr]
            assert held is not None
            assert held.version == version
            assert np.array_equal(held.vector.view(np.uint32), self.sent.held.view(np.uint32))
            for name, array in held.plain.items():
                assert np.array_equal(array.numpy(), self.arrays[name])
            for name, values in as_arrays(held.record()).items():
                assert np.array_equal(values, self.seen[node][name])
                assert (values.dtype, values.shape) == (self.arrays[name].dtype, self.arrays[name].shape)

    def _deliver(self, message: Message, fates: dict[int, Fate]) -> list[Message]:
        node = message.metadata.dst_node_id
        fate, before = fates[node], copy.copy(self.states[node])
        if fate is Fate.FORGETS:
            self.states[node] = RecordDict()
        self._fails = fate in (Fate.APP_FAILS, Fate.APP_FAILS_IN_A_SIMULATION)
        try:
            reply = self._app(through_the_wire(message), Context(1, node, {}, self.states[node], {}))
        except ZeroDivisionError:
            reply = None
        if fate in (Fate.APP_FAILS_IN_A_SIMULATION, Fate.STATE_UNDONE):
            self.states[node] = before
        return [] if reply is None or fate is Fate.REPLY_LOST else [through_the_wire(reply)]

    def _train(self, message: Message, context: Context) -> Message:
        arrays: ArrayRecord = self._work(message, context)
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        self._work(message, context)
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    def _work(self, message: Message, context: Context) -> Any:
        assert set(message.content) == {"arrays", "config"}
        if self._fails:
            raise ZeroDivisionError
        self.seen[context.node_id] = as_arrays(message.content["arrays"])
        return message.content["arrays"]

    def _move(self) -> None:
        for name, array in self.arrays.items():
            if array.dtype.kind == "f":
                self.arrays[name] = (array + 0.1 * self._generator.normal(size=array.shape)).astype(array.dtype)
            elif name == "bn.num_batches_tracked":
                self.arrays[name] = np.asarray(array + 1)
