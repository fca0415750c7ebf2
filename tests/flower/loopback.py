"""Flower apps for the tests of compression, and a grid that runs them in this process.

Messages go through Flower's own serialisation, so that what arrives is what would arrive over a network.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

NODES = (2**63 - 25, 7, 2**32 - 1)
Arrays = dict[str, np.ndarray]


def through_the_wire(message: Message) -> Message:
    """Taken apart into bytes and put together again."""
    contents = {key: value.deflate() for key, value in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(arrived, Message)
    arrived.metadata.__dict__["_message_id"] = message.object_id  # As the SuperLink does.
    return arrived


class Loopback:
    """A grid of nodes that answer at once. `tamper` changes what a node says."""

    def __init__(
        self,
        app: ClientApp,
        tamper: Callable[[Message], Message] = lambda reply: reply,
        run_config: dict[str, Any] | None = None,
    ) -> None:
        self.app, self.tamper = app, tamper
        self.contexts = {
            node: Context(
                1, node, {"partition-id": number, "num-partitions": len(NODES)}, RecordDict(), run_config or {}
            )
            for number, node in enumerate(NODES)
        }
        self.errors: list[str] = []

    def get_node_ids(self) -> Iterable[int]:
        return NODES

    def send_and_receive(self, messages: Iterable[Message], **_: Any) -> list[Message]:
        return [self._answer(through_the_wire(message)) for message in messages]

    def _answer(self, message: Message) -> Message:
        try:
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # As a node does.
            self.errors.append(str(error))
            return Message(Error(0, str(error)), reply_to=message)
        return self.tamper(through_the_wire(reply))


def start_arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return {
        "layer.weight": generator.normal(size=(40, 30)).astype(np.float32),
        "layer.half": generator.normal(size=500).astype(np.float16),
        "bn.running_var": np.full(30, 0.01, np.float32),
        "bn.num_batches_tracked": np.array(3, np.int64),
        "double": generator.normal(size=(3, 5)),
        "position_ids": np.arange(12),
    }


CODED = ("layer.weight", "layer.half", "double")
PLAIN = ("bn.running_var", "bn.num_batches_tracked", "position_ids")


def as_record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def as_arrays(record: Any) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def trained(arrays: Arrays, node: int, round_number: int) -> Arrays:
    """A client's weights after training: something that differs by node and round."""
    generator = np.random.default_rng([node, round_number])
    after = {}
    for name, array in arrays.items():
        if name in ("position_ids", "bn.num_batches_tracked"):
            after[name] = np.asarray(array).astype(np.int64)  # As `load_state_dict` makes of whatever arrives.
        else:
            after[name] = (array + 0.1 * generator.normal(size=array.shape)).astype(array.dtype)
    return after


def client_app(*mods: Any, updates: bool = False) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if mods:  # The app does not see that there is compression.
            assert set(message.content) == {"arrays", "config"}
        before = as_arrays(message.content["arrays"])
        after = trained(before, context.node_id, int(message.content["config"]["server-round"]))
        if updates:
            after = {name: after[name] - before[name] for name in after}
        content = RecordDict({"arrays": as_record(after), "metrics": MetricRecord({"num-examples": 5, "loss": 1.0})})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 5})}), reply_to=message)

    return app


def run(strategy: Strategy, grid: Loopback, rounds: int = 2) -> tuple[Arrays, Any]:
    random.seed(0)  # Flower samples nodes with the global generator, and sums of floats depend on their order.
    result = strategy.start(grid, as_record(start_arrays()), num_rounds=rounds)  # type: ignore[arg-type]
    return as_arrays(result.arrays), result


def one_round(made: Any, grid: Loopback, round_number: int = 1) -> tuple[dict[int, Arrays], MetricRecord, Any]:
    """Arrays by node as the wrapped strategy gets them, the metrics, and the strategy."""
    strategy = made.strategy(FedAvg(fraction_evaluate=0))
    messages = strategy.configure_train(round_number, as_record(start_arrays()), ConfigRecord(), grid)
    opened, metrics = strategy.subbit.open(grid.send_and_receive(messages))
    return (
        {reply.metadata.src_node_id: as_arrays(reply.content["arrays"]) for reply in opened if reply.has_content()},
        metrics,
        strategy,
    )
