"""The node's side of a compressed downlink: what it holds between messages, and how it follows a broadcast.

It is kept in `context.state`, which Flower keeps for each node and run, in the memory of the SuperNode or the
simulation, and drops with the run. Each message starts a new process that gets the state and gives it back, as one
protobuf message of at most 2 GB; `MOST_BYTES` leaves room for a residual of the same size.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from subbit.codecs import Vector
from subbit.core.errors import FrameError
from subbit.flower.array_form import ArrayForm
from subbit.flower.change_stream import ChangeStream, DownCodecs, checksum
from subbit.flower.compression_order import BroadcastOrder, Held
from subbit.flower.layout import read_array

HELD = "subbit-held"
"""Name of the record in the node's state with the arrays that it holds."""
HELD_AT = "subbit-held-at"
"""Name of the record in the node's state that says of which version they are."""
VECTOR, PLAIN = "vector", "plain/"
MOST_BYTES = 1_000_000_000


@dataclass(frozen=True)
class HeldArrays:
    lineage: str
    version: int
    form: ArrayForm
    vector: Vector
    plain: dict[str, Array]

    def record(self) -> ArrayRecord:
        return self.form.record(self.vector, self.plain)

    def said(self) -> Held:
        return Held(self.version, checksum(self.vector))

    def store(self, state: RecordDict) -> None:
        plain = {PLAIN + name: array for name, array in self.plain.items()}
        state[HELD] = ArrayRecord({VECTOR: Array(self.vector), **plain})
        state[HELD_AT] = ConfigRecord(
            {"lineage": self.lineage, "version": self.version, "form": self.form.to_bytes()},
        )

    @classmethod
    def load(cls, state: RecordDict, lineage: str) -> HeldArrays | None:
        """What this node holds of that lineage. A state that cannot be read is one that is gone."""
        at, arrays = state.config_records.get(HELD_AT, ConfigRecord()), state.array_records.get(HELD, ArrayRecord())
        version, form_bytes = at.get("version"), at.get("form")
        if at.get("lineage") != lineage or type(version) is not int or not isinstance(form_bytes, bytes):
            return None
        plain = {name.removeprefix(PLAIN): array for name, array in arrays.items() if name.startswith(PLAIN)}
        try:
            form = ArrayForm.from_bytes(form_bytes)
            vector = read_array(arrays[VECTOR], (form.template.size,))
        except (FrameError, KeyError):
            return None
        return cls(lineage, version, form, vector, plain) if vector.dtype == "float32" else None


def follow_broadcast(
    order: BroadcastOrder, sent: ArrayRecord, before: HeldArrays | None, codecs: DownCodecs
) -> HeldArrays:
    """What the node holds after this message; `FrameError` if it cannot follow, and it still holds what it held."""
    at = before.version if before is not None else 0
    if at < order.base:
        raise FrameError("memory", f"this node holds version {at}, the message builds on {order.base}")
    if order.base == 0:
        before = None  # The server starts afresh with this node, so that whatever it holds does not matter.
        at = 0
    if at > order.version:
        raise FrameError("version", f"this node holds version {at} already, the message brings {order.version}")
    if before is None and not order.form:
        raise FrameError("template", "a message for a node that holds nothing says which arrays there are")
    form = ArrayForm.from_bytes(order.form) if order.form or before is None else before.form
    if before is not None and form.template != before.form.template:
        raise FrameError("template", "the arrays are not those that this node holds")
    stream = ChangeStream(codecs, order.lineage, form.template)
    if order.snapshot:
        vector = stream.open_snapshot(order.snapshot, order.version)
    else:
        vector = before.vector if before is not None else stream.nothing()
        for version in range(at + 1, order.version + 1):  # The node may have more than it could confirm.
            vector = stream.follow(vector, order.frames[version - order.base - 1], version)
    plain = {**(before.plain if before is not None else {}), **sent}
    missing = [name for name in form.plain if name not in plain]
    if missing or not set(sent) <= set(form.plain):
        raise FrameError("template", f"arrays beside the frame that are missing or not expected: {sorted(sent)}")
    return HeldArrays(order.lineage, order.version, form, vector, {name: plain[name] for name in form.plain})
