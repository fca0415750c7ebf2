"""Replies that are not what they should be: left out, counted by cause, and the round goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import FrameError
from subbit.flower import compress
from subbit.flower.compression import RECORD
from subbit.flower.layout import Layout, read_array
from tests.flower.loopback import NODES, Loopback, as_record, client_app, one_round, run, start_arrays

pytestmark = pytest.mark.usefixtures("a_run")

LIAR = NODES[1]
Tamper = Callable[[Message], None]


def lying(change: Tamper) -> Callable[[Message], Message]:
    def tamper(reply: Message) -> Message:
        if reply.metadata.src_node_id == LIAR and RECORD in reply.content:
            change(reply)
        return reply

    return tamper


def frame(change: Callable[[bytes], Any]) -> Tamper:
    def tamper(reply: Message) -> None:
        found = reply.content[RECORD]["frame"]
        reply.content[RECORD] = ConfigRecord({**reply.content[RECORD], "frame": change(found)})

    return tamper


def beside(name: str, value: Array | None) -> Tamper:
    def tamper(reply: Message) -> None:
        arrays = dict(reply.content["arrays"])
        arrays.pop(name, None)
        if value is not None:
            arrays[name] = value
        reply.content["arrays"] = ArrayRecord(arrays)

    return tamper


def drop_record(name: str) -> Tamper:
    return lambda reply: reply.content.pop(name)


def bomb() -> Array:
    """A header that promises a terabyte and brings nothing."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)})
    return Array("float32", (30,), "numpy.ndarray", stream.getvalue())


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (frame(lambda good: b"rubbish"), "not-a-frame"),
        (frame(lambda good: "text"), "not-a-frame"),
        (frame(lambda good: good[:-1]), "truncated"),
        (frame(lambda good: good + b"\0"), "length"),
        (frame(lambda good: good[:-1] + bytes([good[-1] ^ 1])), "checksum"),
        (drop_record(RECORD), "not-a-frame"),
        (drop_record("arrays"), "template"),
        (lambda reply: reply.content.update({"more": ArrayRecord()}), "template"),
        (beside("bn.running_var", None), "template"),
        (beside("extra", Array(np.zeros(3))), "template"),
        (beside("layer.weight", Array(np.zeros(3))), "template"),
        (beside("bn.running_var", Array(np.zeros(31, np.float32))), "payload"),
        (beside("bn.running_var", Array(np.full(30, np.nan, np.float32))), "value"),
        (beside("bn.running_var", Array("float32", (30,), "numpy.ndarray", b"")), "payload"),
        (beside("bn.running_var", Array("float32", (30,), "numpy.ndarray", b"PK\x03\x04")), "payload"),
        (beside("bn.running_var", bomb()), "payload"),
        (beside("bn.running_var", Array(np.zeros(30, "S4"))), "payload"),
    ],
)
def test_a_bad_reply_is_left_out_and_counted_by_cause(change: Tamper, cause: str) -> None:
    made = compress(codec="eden", bits=1)
    found, metrics, strategy = one_round(made, Loopback(client_app(made), lying(change)))
    assert set(found) == set(NODES) - {LIAR}
    assert metrics["subbit-bad-frames"] == 1
    assert strategy.subbit.refused == {cause: 1}


def test_the_average_is_that_of_the_others() -> None:
    made = compress(codec="eden", bits=1)
    bad = Loopback(client_app(made), lying(frame(lambda good: good[:9])))
    failing = Loopback(client_app(made), lambda reply: _error(reply) if reply.metadata.src_node_id == LIAR else reply)
    left_out, result = run(made.strategy(FedAvg(fraction_evaluate=0)), bad)
    expected, _ = run(made.strategy(FedAvg(fraction_evaluate=0)), failing)
    for name in expected:
        assert np.array_equal(left_out[name], expected[name])
    assert [metrics["subbit-bad-frames"] for metrics in result.train_metrics_clientapp.values()] == [1, 1]


def _error(reply: Message) -> Message:
    return Message(error=Error(0, "gone"), metadata=reply.metadata)


def test_frames_of_another_round_another_node_and_another_model_are_refused() -> None:
    made = compress(codec="eden", bits=1)
    layout = Layout.of(as_record(start_arrays()), ())
    other = Layout.of(as_record({**start_arrays(), "double": np.zeros(15)}), ())
    vector = np.ones(layout.template.size, np.float32)
    good = made._encode(vector, layout, 3, 7, None)  # type: ignore[arg-type]
    assert made.decode(good, layout, 3, 7).shape == vector.shape
    for cause, where in (("round", (layout, 4, 7)), ("client", (layout, 3, 8)), ("template", (other, 3, 7))):
        with pytest.raises(FrameError) as caught:
            made.decode(good, *where)
        assert caught.value.cause == cause


def test_a_node_that_was_not_asked_and_one_that_answers_twice_are_refused() -> None:
    made = compress(codec="eden", bits=1)
    grid = Loopback(client_app(made))
    strategy = made.strategy(FedAvg(fraction_evaluate=0))
    messages = strategy.configure_train(1, as_record(start_arrays()), ConfigRecord(), grid)  # type: ignore[arg-type]
    replies = grid.send_and_receive(messages)
    replies[1].metadata.__dict__["_src_node_id"] = replies[0].metadata.src_node_id
    replies[2].metadata.__dict__["_src_node_id"] = 99
    opened, metrics = strategy.subbit.open(replies)  # type: ignore[attr-defined]
    assert [reply.metadata.src_node_id for reply in opened] == [replies[0].metadata.src_node_id]
    assert metrics["subbit-bad-frames"] == 2
    assert strategy.subbit.refused == {"client": 2}  # type: ignore[attr-defined]


def test_a_value_that_overflows_when_it_is_added_is_refused() -> None:
    layout = Layout({"half": np.full(4, 60000, np.float16)}, ("half",))
    with pytest.raises(FrameError, match="not finite"):
        layout.rebuild(np.full(4, 60000, np.float32), ArrayRecord(), True)


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: Array(np.zeros(3)).data[:100] + tail))
def test_any_bytes_beside_a_frame_are_an_array_or_a_frame_error(data: bytes) -> None:
    with suppress(FrameError):
        assert read_array(Array("float64", (3,), "numpy.ndarray", data), (3,)).shape == (3,)
