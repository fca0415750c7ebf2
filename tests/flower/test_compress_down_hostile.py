"""Broadcasts and answers that are not what they should be: a typed failure of that node, and the round goes on."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import FrameError
from subbit.flower import compress
from subbit.flower.array_form import ArrayForm
from subbit.flower.compression_order import RECORD
from subbit.flower.held_arrays import HELD, HELD_AT, HeldArrays, follow_broadcast
from subbit.flower.layout import Layout
from subbit.flower.sent_changes import EXACTLY, SentChanges
from tests.flower.loopback import NODES, Loopback, as_record, client_app, run, start_arrays

pytestmark = pytest.mark.usefixtures("a_run")

VICTIM = NODES[1]
Change = Callable[[dict[str, Any]], Any]


def fields(**changed: Any) -> Change:
    return lambda found: {**found, **changed}


def frames(change: Callable[[bytes], Any]) -> Change:
    return lambda found: {**found, "frames": [change(frame) for frame in found["frames"]]}


def without(name: str) -> Change:
    return lambda found: {key: value for key, value in found.items() if key != name}


def on_the_way(change: Change, rounds: tuple[int, ...]) -> Any:
    """A mod before ours, which changes the order that reaches one node."""

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        record = message.content[RECORD]
        if context.node_id == VICTIM and record["round"] in rounds:
            message.content[RECORD] = ConfigRecord(change(dict(record)))
        return call_next(message, context)

    return mod


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (frames(lambda good: b"rubbish"), "not-a-frame"),
        (frames(lambda good: good[:-1]), "truncated"),
        (frames(lambda good: good + b"\0"), "length"),
        (frames(lambda good: good[:-1] + bytes([good[-1] ^ 1])), "checksum"),
        (fields(frames=["text"]), "version"),
        (fields(frames=[b"a", b"b", b"c"]), "version"),
        (fields(version=7), "version"),
        (fields(base=-1), "version"),
        (fields(version="2"), "not-a-frame"),
        (fields(base=2, version=3), "memory"),
        (fields(lineage="0123456789abcdef"), "memory"),
        (fields(form=b"rubbish"), "template"),
        (fields(form=zlib.compress(b'{"names": ["a"], "coded": [["a", [5], "float32"]]}')), "template"),
        (without("frames"), "version"),
        (lambda found: {**without("frames")(found), "snapshot": found["frames"][0]}, "codec"),
    ],
)
def test_a_bad_broadcast_is_answered_by_its_cause_and_the_next_one_repairs_it(change: Change, cause: str) -> None:
    made = compress(codec="eden", bits=1)
    grid = Loopback(client_app(on_the_way(change, (2,)), made))
    strategy: Any = made.strategy(FedAvg(fraction_evaluate=0))
    _, result = run(strategy, grid, rounds=3)
    assert grid.errors == []
    assert [metrics["subbit-bad-frames"] for metrics in result.train_metrics_clientapp.values()] == [0, 1, 0]
    assert strategy.subbit.refused == {cause: 1}
    held = [HeldArrays.load(context.state, strategy.subbit.sent._stream.lineage) for context in grid.contexts.values()]
    assert all(one is not None and np.array_equal(one.vector, strategy.subbit.sent.held) for one in held)


@pytest.mark.parametrize(
    ("change", "cause", "believed"),
    [
        (fields(**{"held-checksum": 1}), "memory", EXACTLY),
        (fields(held=7), "version", 1),
        (fields(held="2"), "version", 1),
        (without("held"), "version", 1),
        (fields(refused="memory", held=1), "memory", 1),
        (fields(refused="memory", held=99), "memory", 0),
        (fields(refused="payload", held=1), "payload", 0),
        (fields(refused="x" * 5000, reason="y" * 5000), "payload", 0),
        (fields(refused="value", reason=b"\xff"), "value", 0),
        (fields(refused=5), None, 2),  # Not a refusal; the rest is as it should be.
    ],
)
def test_a_node_that_says_what_it_cannot_hold(change: Change, cause: str | None, believed: int) -> None:
    made = compress(codec="eden", bits=1)

    def tamper(reply: Message) -> Message:
        if reply.metadata.src_node_id == VICTIM and reply.content[RECORD]["held"] == 2:
            reply.content[RECORD] = ConfigRecord(change(dict(reply.content[RECORD])))
        return reply

    strategy: Any = made.strategy(FedAvg(fraction_evaluate=0))
    grid = Loopback(client_app(made), tamper)
    run(strategy, grid, rounds=2)
    assert strategy.subbit.refused == ({cause: 1} if cause else {})
    assert strategy.subbit.sent.confirmed[VICTIM] == believed
    messages = strategy.configure_train(3, as_record(start_arrays()), ConfigRecord(), grid)
    opened, metrics = strategy.subbit.open(grid.send_and_receive(messages))
    assert metrics["subbit-bad-frames"] == 0
    assert len(opened) == len(NODES)


@pytest.mark.parametrize("name", [HELD, HELD_AT])
@pytest.mark.parametrize("value", ["gone", "other"])
def test_a_state_that_was_lost_or_overwritten_is_answered_as_a_memory_that_is_gone(name: str, value: str) -> None:
    made = compress()

    def forget(message: Message, context: Context, call_next: Any) -> Message:
        if context.node_id == VICTIM and message.content[RECORD]["round"] == 2:
            if value == "gone":
                del context.state[name]
            else:
                wrong = {HELD: ArrayRecord({"vector": Array(np.zeros(3))}), HELD_AT: ConfigRecord({"version": "x"})}
                context.state[name] = wrong[name]
        return call_next(message, context)

    strategy: Any = made.strategy(FedAvg(fraction_evaluate=0))
    _, result = run(strategy, Loopback(client_app(forget, made)), rounds=3)
    assert strategy.subbit.refused == {"memory": 1}
    assert [metrics["subbit-bad-frames"] for metrics in result.train_metrics_clientapp.values()] == [0, 1, 0]


def test_frames_of_another_run_are_refused() -> None:
    """Same model, same version, same settings: only the lineage differs."""
    made = compress()
    assert made.down is not None
    orders = []
    for _ in range(2):
        sent, record = SentChanges(made.down), as_record({"weight": np.ones(40, np.float32)})
        sent.advance(record, Layout.of(record, ()))
        orders.append(sent.order(0)[0])
    mixed = {**orders[0].fields(), "frames": list(orders[1].frames)}
    content = RecordDict({"arrays": ArrayRecord(), RECORD: ConfigRecord(mixed)})
    with pytest.raises(FrameError) as caught:
        made._receive(content, RecordDict())
    assert caught.value.cause == "template"


def test_an_app_without_the_mod_fails_and_the_server_says_why(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").addHandler(caplog.handler)
    run(compress().strategy(FedAvg(fraction_evaluate=0)), Loopback(strict_app()), rounds=1)
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert "failed before any node confirmed" in caplog.text
    assert "the ClientApp needs compress(...) among its mods" in caplog.text


def strict_app() -> Any:
    app = client_app()
    app._registered_funcs.clear()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise KeyError(str(message.content["arrays"]["layer.weight"]))

    return app


@given(st.binary(max_size=200) | st.binary(max_size=100).map(zlib.compress))
def test_any_bytes_are_a_form_or_a_frame_error(data: bytes) -> None:
    with suppress(FrameError):
        assert ArrayForm.from_bytes(data).template.size >= 0


@given(
    st.recursive(
        st.none() | st.integers(-3, 5) | st.sampled_from(["a", "float32", "float16", "int8"]),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=12,
    ).flatmap(
        lambda names: st.tuples(st.just(names), st.lists(st.lists(st.sampled_from([names, "a", [2], "float32"]))))
    )
)
def test_any_json_is_a_form_or_a_frame_error(parts: Any) -> None:
    data = zlib.compress(json.dumps({"names": parts[0], "coded": parts[1]}).encode())
    with suppress(FrameError):
        assert ArrayForm.from_bytes(data).template.size >= 0


def test_a_form_that_would_fill_the_memory_is_refused() -> None:
    for text in (b'{"names": ["a"], "coded": [["a", [99999999, 99999999], "float32"]]}', b" " * (1 << 25)):
        with pytest.raises(FrameError, match="names and shapes"):
            ArrayForm.from_bytes(zlib.compress(text))


def test_an_order_that_leaves_out_an_array_is_refused() -> None:
    made = compress()
    assert made.down is not None
    sent, record = SentChanges(made.down), as_record(start_arrays())
    layout = Layout.of(record, ("bn.running_var",))
    sent.advance(record, layout)
    order, plain = sent.order(0)
    assert follow_broadcast(order, plain, None, made.down).version == 1
    for wrong in (ArrayRecord(), ArrayRecord({**plain, "more": Array(np.zeros(2))})):
        with pytest.raises(FrameError) as caught:
            follow_broadcast(order, wrong, None, made.down)
        assert caught.value.cause == "template"
