"""Records from outside: what is whole comes back, anything else is a `FrameError`."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from subbit.core.errors import FrameError
from subbit.flower.node import make_client_app
from subbit.flower.records import (
    order_to_records,
    records_to_order,
    records_to_reply,
    reply_to_records,
)
from subbit.runtime.messages import Failure, Order, Reply
from tests.flower.loopback import through_the_wire

JOB = "0123456789abcdef" * 2


def sent(records: RecordDict) -> RecordDict:
    """Through Flower's own serialisation."""
    return through_the_wire(Message(records, 1, MessageType.TRAIN)).content


@pytest.mark.usefixtures("a_run")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=some.lists(some.binary(max_size=40), max_size=3),
    head=some.none() | some.binary(max_size=40),
    number=some.integers(0, 2**32 - 1),
    kept=some.integers(-1, 2**32),
)
def test_an_order_arrives_as_it_was_sent(frames: list[bytes], head: bytes | None, number: int, kept: int) -> None:
    order = Order("main", number, 7, tuple(frames), head, kept)
    assignment = records_to_order(sent(order_to_records(order, JOB)))
    assert assignment.order == order
    assert assignment.job == JOB


@pytest.mark.usefixtures("a_run")
def test_a_reply_arrives_as_it_was_sent() -> None:
    order = Order("main", 4, 3, (), kept=2)
    for kept in (-1, 2, 5):  # Nothing, what it started from, or what it has after round 4, which is turn 5.
        reply = Reply(3, (b"frame", b""), kept=kept, observations={"loss": 0.5, "flips": 3})
        assert records_to_reply(sent(reply_to_records(reply)), order, 100) == reply
    with pytest.raises(FrameError, match="turn 4, which is neither new nor the one it used"):
        records_to_reply(sent(reply_to_records(Reply(3, kept=4))), order, 100)
    failed = Reply(3, failure=Failure("training", "x" * 1000))
    assert records_to_reply(sent(reply_to_records(failed)), order, 0).failure == Failure("training", "x" * 500)


def test_the_broadcast_is_the_same_object_for_every_client() -> None:
    """Flower stores records by their content: one upload, whoever it goes to."""
    first, second = (order_to_records(Order("main", 1, client, (b"frame",)), JOB) for client in (0, 1))
    assert first["broadcast"].object_id == second["broadcast"].object_id
    assert first["order"].object_id != second["order"].object_id


def changed(record: str, **fields: Any) -> RecordDict:
    records = order_to_records(Order("main", 1, 0, (b"frame",)), JOB)
    records[record] = ConfigRecord({**records[record], **fields})
    return records


@pytest.mark.parametrize(
    "records",
    [
        RecordDict(),
        changed("order", phase="other"),
        changed("order", round=-1),
        changed("order", round=2**32),
        changed("order", round="1"),
        changed("order", client=True),
        changed("order", job="../../etc"),
        changed("order", job=JOB.upper()),
        changed("order", kept=-2),
        changed("broadcast", **{"0": "text"}),
        changed("broadcast", **{"2": b"no frame 1"}),
        changed("broadcast", **{str(index): b"" for index in range(17)}),
        RecordDict({"surprise": ConfigRecord()}),
        RecordDict({"order": MetricRecord()}),
    ],
)
def test_a_malformed_order_is_refused(records: RecordDict) -> None:
    with pytest.raises(FrameError):
        records_to_order(records)


@pytest.mark.parametrize(
    ("records", "cause"),
    [
        ({}, "record"),
        ({"reply": ConfigRecord({"cause": "BAD WORD", "message": ""})}, "record"),
        ({"reply": ConfigRecord({"cause": "training", "message": 5})}, "record"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord({"0": b"12345"}), "observed": MetricRecord()}, "length"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord(), "observed": MetricRecord({"x": float("nan")})}, "value"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord(), "observed": MetricRecord({"x": 1.7e308})}, "value"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord(), "observed": MetricRecord({"x": [1.0]})}, "value"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord(), "observed": MetricRecord({"\n": 1.0})}, "value"),
        ({"reply": ConfigRecord(), "frames": ConfigRecord(), "observed": ConfigRecord()}, "record"),
    ],
)
def test_a_malformed_reply_is_refused_with_a_cause(records: dict[str, Any], cause: str) -> None:
    with pytest.raises(FrameError) as caught:
        records_to_reply(RecordDict(records), Order("main", 0, 0, ()), 4)
    assert caught.value.cause == cause


@pytest.mark.usefixtures("a_run")
def test_a_node_refuses_an_order_for_somebody_else() -> None:
    app = make_client_app(lambda context: 'dataset = "digits"', lambda context: pytest.fail("not reached"))
    order = Message(order_to_records(Order("main", 0, 1, ()), JOB), 5, MessageType.TRAIN)
    reply = app(through_the_wire(order), Context(1, 5, {"partition-id": 0}, RecordDict(), {}))
    failure = records_to_reply(reply.content, Order("main", 0, 1, ()), 0).failure
    assert failure is not None
    assert failure.cause == "client"
