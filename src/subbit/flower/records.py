"""Orders and replies as Flower records, and back.

Frames are sent as `bytes` in ConfigRecords; nothing is pickled. What is the same for all clients has its own record:
Flower stores records by content, so a broadcast is uploaded once, regardless of the number of clients.

    order     "order"      phase, round, client, job, kept (the turn whose memory the client uses, -1 for none),
                           purpose (train, evaluate or loss), missed (how many broadcasts the client missed)
              "broadcast"  the frames, named 0, 1, ...
              "head"       the fitted head, only the first time
              "missed-0"   ... the frames of each missed broadcast, or
              "snapshot"   a snapshot instead of them
    finished  "order"      job: the node may delete its memories
    reply     "reply"      the turn whose memory to use next time, or a failure's cause and message
              "frames"     the frames, named 0, 1, ...
              "observed"   a MetricRecord of numbers for the log

Types, names and sizes of every record are checked before anything in it is used; otherwise `FrameError`. A reply does
not contain its client: that follows from the message it replies to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from flwr.app import ConfigRecord, MessageType, MetricRecord, RecordDict

from subbit.core.errors import FrameError
from subbit.flower.node import FINISHED_ACTION
from subbit.flower.node_memory import JOB_PATTERN
from subbit.runtime.client_memory import NO_MEMORY, turn_number
from subbit.runtime.downlink import MOST_MISSED
from subbit.runtime.messages import Failure, Order, Phase, Purpose, Reply

FINISHED = f"{MessageType.QUERY}.{FINISHED_ACTION}"
"""The type of the message that reports a finished job."""
PURPOSES: dict[str, Purpose] = {purpose: purpose for purpose in get_args(Purpose)}
MOST_FRAMES = 16
MOST_OBSERVATIONS = 4096  # Sums of an evaluation have two numbers for every class.
LONGEST_MESSAGE = 500
_CAUSE = re.compile(r"[a-z][a-z-]{0,31}")
_OBSERVATION = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_ROUNDS = 2**32 - 1
MOST_OBSERVED = 1e100  # Sums of any number of these are finite.

Value = TypeVar("Value")


@dataclass(frozen=True)
class Assignment:
    """An order as received by a node, and the identifier of its run."""

    order: Order
    job: str


def order_to_records(order: Order, job: str) -> RecordDict:
    records = RecordDict(
        {
            "order": ConfigRecord(
                {
                    "phase": order.phase,
                    "round": order.round_number,
                    "client": order.client,
                    "job": job,
                    "kept": order.kept,
                    "purpose": order.purpose,
                    "missed": len(order.missed),
                }
            ),
            "broadcast": _frame_record(order.frames),
        }
    )
    if order.head_frame is not None:
        records["head"] = _frame_record((order.head_frame,))
    for index, frames in enumerate(order.missed):
        records[f"missed-{index}"] = _frame_record(frames)
    if order.snapshot:
        records["snapshot"] = _frame_record(order.snapshot)
    return records


def records_to_order(records: RecordDict) -> Assignment:
    fields = _record(records, "order", ConfigRecord)
    missed = [f"missed-{index}" for index in range(_whole(fields, "missed", 0, MOST_MISSED))]
    _only(records, {"order", "broadcast", "head", "snapshot", *missed}, "order")
    phase = _field(fields, "phase", str)
    if phase not in ("head", "main"):
        raise FrameError("record", f"an order speaks of phase {shown(phase)}, expected head or main")
    purpose = _field(fields, "purpose", str)
    if purpose not in PURPOSES:
        raise FrameError("record", f"an order is for {shown(purpose)}, expected {', '.join(PURPOSES)}")
    known: Phase = "head" if phase == "head" else "main"
    head = _frames(_record(records, "head", ConfigRecord)) if "head" in records else ()
    order = Order(
        phase=known,
        round_number=_whole(fields, "round", 0, _MOST_ROUNDS),
        client=_whole(fields, "client", 0, _MOST_ROUNDS - 1),
        frames=_frames(_record(records, "broadcast", ConfigRecord)),
        head_frame=head[0] if head else None,
        kept=_whole(fields, "kept", NO_MEMORY, _MOST_ROUNDS + 1),
        missed=tuple(_frames(_record(records, name, ConfigRecord)) for name in missed),
        snapshot=_frames(_record(records, "snapshot", ConfigRecord)) if "snapshot" in records else (),
        purpose=PURPOSES[purpose],
    )
    return Assignment(order, _job(fields))


def finished_to_records(job: str) -> RecordDict:
    return RecordDict({"order": ConfigRecord({"job": job})})


def records_to_finished(records: RecordDict) -> str:
    """The finished job."""
    _only(records, {"order"}, "order")
    return _job(_record(records, "order", ConfigRecord))


def reply_to_records(reply: Reply) -> RecordDict:
    """The records of a reply. The client's memory is not included."""
    if reply.failure is not None:
        failure = ConfigRecord({"cause": reply.failure.cause, "message": reply.failure.message[:LONGEST_MESSAGE]})
        return RecordDict({"reply": failure})
    observed = {name: float(value) for name, value in reply.observations.items()}
    return RecordDict(
        {
            "reply": ConfigRecord({"kept": reply.kept}),
            "frames": _frame_record(reply.frames),
            "observed": MetricRecord(dict(observed)),
        }
    )


def records_to_reply(records: RecordDict, order: Order, most_bytes: int) -> Reply:
    """The reply to this order; `most_bytes` bounds the total size of its frames."""
    client = order.client
    _only(records, {"reply", "frames", "observed"}, "reply")
    fields = _record(records, "reply", ConfigRecord)
    if "cause" in fields:
        cause, message = _field(fields, "cause", str), _field(fields, "message", str)
        if _CAUSE.fullmatch(cause) is None:
            raise FrameError("record", f"a reply fails for the cause {shown(cause)}, expected a short word")
        return Reply(client, failure=Failure(cause, printable(message)))
    frames = _frames(_record(records, "frames", ConfigRecord))
    total = sum(map(len, frames))
    if total > most_bytes:
        raise FrameError("length", f"the frames of a reply have {total} bytes, expected at most {most_bytes}")
    observations = _observations(_record(records, "observed", MetricRecord))
    kept = _whole(fields, "kept", NO_MEMORY, _MOST_ROUNDS + 1)
    if kept not in (NO_MEMORY, order.kept, turn_number(order.phase, order.round_number)):
        raise FrameError("record", f"a reply keeps the memory of turn {kept}, which is neither new nor the one it used")
    return Reply(client, frames, kept=kept, observations=observations)


def printable(text: str) -> str:
    """Untrusted text made safe to print and log: one line, no control characters, limited length."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_MESSAGE])


def _frame_record(frames: tuple[bytes, ...]) -> ConfigRecord:
    return ConfigRecord({str(index): frame for index, frame in enumerate(frames)})


def _frames(record: Mapping[str, Any]) -> tuple[bytes, ...]:
    if len(record) > MOST_FRAMES:
        raise FrameError("length", f"a message has {len(record)} frames, expected at most {MOST_FRAMES}")
    return tuple(_field(record, str(index), bytes) for index in range(len(record)))


def _observations(record: Mapping[str, Any]) -> dict[str, float]:
    if len(record) > MOST_OBSERVATIONS:
        raise FrameError("record", f"a reply has {len(record)} observations, expected at most {MOST_OBSERVATIONS}")
    for name, value in record.items():
        if _OBSERVATION.fullmatch(name) is None or type(value) not in (int, float) or not abs(value) <= MOST_OBSERVED:
            raise FrameError("value", f"an observation is {shown(name)} = {shown(value)}, expected a finite number")
    return {name: float(value) for name, value in record.items()}


def _job(fields: Mapping[str, Any]) -> str:
    job = _field(fields, "job", str)
    if JOB_PATTERN.fullmatch(job) is None:
        raise FrameError("record", f"an order names the job {shown(job)}, expected 32 hexadecimal digits")
    return job


def _only(records: RecordDict, names: set[str], what: str) -> None:
    unknown = sorted(set(records) - names)
    if unknown:
        raise FrameError("record", f"the {what} has a record {shown(unknown[0])}, expected {', '.join(sorted(names))}")


def _record(records: RecordDict, name: str, kind: type[Value]) -> Value:
    if name not in records or not isinstance(records[name], kind):
        found = type(records[name]).__name__ if name in records else "nothing"
        raise FrameError("record", f"the record {name!r} is {found}, expected {kind.__name__}")
    return records[name]  # type: ignore[return-value]


def _field(record: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    value = record.get(name)
    if type(value) is not kind:
        raise FrameError("record", f"the field {name!r} is {type(value).__name__}, expected {kind.__name__}")
    return value


def _whole(record: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = _field(record, name, int)
    if not least <= value <= most:
        raise FrameError("record", f"the field {name!r} is {value}, expected {least} to {most}")
    return value


def shown(value: object, most: int = 80) -> str:
    return printable(repr(value)[:most])
