"""The server's side of a compressed downlink: one copy of what all nodes hold, and the frames that led to it.

A node that missed versions is sent their frames, or a snapshot where those are no longer kept: the frames that are kept
are together shorter than a snapshot. By node the server remembers only the last version that it confirmed.
"""

from __future__ import annotations

import secrets
from collections import deque
from hashlib import blake2b
from itertools import islice

import numpy as np
from flwr.app import Array, ArrayRecord

from subbit.codecs import Vector
from subbit.core.errors import FrameError, PayloadError
from subbit.flower.array_form import ArrayForm
from subbit.flower.change_stream import ChangeStream, DownCodecs, checksum
from subbit.flower.compression_order import BroadcastOrder, Held
from subbit.flower.held_arrays import MOST_BYTES
from subbit.flower.layout import Layout
from subbit.wire.frame import HEADER_BYTES

MOST_FRAMES = 64
"""Each frame that a node missed costs it a pass over the whole vector."""
EXACTLY = -1
"""In place of a confirmed version: this node followed the frames to something else, and needs a snapshot."""


class SentChanges:
    def __init__(self, codecs: DownCodecs) -> None:
        self.codecs = codecs
        self.version = 0
        self.held: Vector = np.zeros(0, np.float32)
        """After `version`, on every node that confirmed it."""
        self.checksum = 0
        """Of `held`."""
        self.confirmed: dict[int, int] = {}
        """By node, the last version that it confirmed."""
        self._target = b""
        self._stream: ChangeStream | None = None
        self._form: ArrayForm | None = None
        self._form_since = 0
        self._frames: deque[bytes] = deque()
        self._plain: dict[str, tuple[Array, int]] = {}
        """The arrays that are sent as they are, and the version since which they are so."""

    def advance(self, record: ArrayRecord, layout: Layout) -> None:
        """Make the version of this record, unless the last one is of the same record.

        Raises `FrameError` if the record cannot be sent this way, and nothing has changed then.
        """
        target = _digest(record)
        if target == self._target:
            return
        form = ArrayForm.of(layout)
        if 4 * form.template.size > MOST_BYTES:
            raise PayloadError(f"{form.template.size} values are more than the state of a node takes", "size")
        if not np.isfinite(layout.vector).all():
            raise PayloadError("the global arrays hold values that are not finite", "value")
        stream = self._stream
        if stream is None or stream.template != form.template:
            # Another model has nothing in common with the last one.
            stream = ChangeStream(self.codecs, secrets.token_hex(8), form.template)
            held, version = stream.nothing(), 1
        else:
            held, version = self.held, self.version + 1
        frame = stream.pack(layout.vector, held, version)
        after = stream.follow(held, frame, version)
        if stream is not self._stream:
            self.confirmed, self._frames, self._plain, self._form = {}, deque(), {}, None
        self._stream, self.held, self.version, self._target = stream, after, version, target
        self.checksum = checksum(after)
        if form != self._form:
            self._form, self._form_since = form, version
        self._keep(frame)
        self._note_plain(record, form)

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        longest = HEADER_BYTES + 4 * self.held.size
        while len(self._frames) > MOST_FRAMES or (len(self._frames) > 1 and sum(map(len, self._frames)) > longest):
            self._frames.popleft()

    def _note_plain(self, record: ArrayRecord, form: ArrayForm) -> None:
        before, self._plain = self._plain, {}
        for name in form.plain:
            known = before.get(name)
            same = known is not None and _same(known[0], record[name])
            self._plain[name] = known if known is not None and same else (record[name], self.version)

    def order(self, confirmed: int) -> tuple[BroadcastOrder, ArrayRecord]:
        """What to send to a node that confirmed this version so that it holds the newest, and the arrays beside it."""
        if self._stream is None or self._form is None:
            raise RuntimeError("nothing was broadcast yet")
        base = max(confirmed, 0)
        missed = self.version - base
        frames: tuple[bytes, ...] = ()
        snapshot = b""
        if confirmed == EXACTLY or missed > len(self._frames):
            snapshot = self._stream.pack_snapshot(self.held, self.version)
        else:
            frames = tuple(islice(self._frames, len(self._frames) - missed, None))
        form = self._form.to_bytes() if self._form_since > base else b""
        plain = ArrayRecord({name: array for name, (array, since) in self._plain.items() if since > base})
        return BroadcastOrder(self._stream.lineage, self.version, base, frames, snapshot, form), plain

    def confirm(self, node: int, said: Held | None) -> None:
        """A reply to the newest version; `FrameError` if the node does not hold what it should."""
        if said is None or said.version != self.version:
            found = "nothing" if said is None else f"version {said.version}"
            raise FrameError("version", f"the node says that it holds {found}, and was sent version {self.version}")
        if said.checksum != self.checksum:
            self.confirmed[node] = EXACTLY
            raise FrameError("memory", "the node holds other values than the server: it is sent all of them next time")
        self.confirmed[node] = self.version

    def refused(self, node: int, cause: str, said: Held | None) -> None:
        """A node that could not follow: the next message builds on what it says it holds, or on nothing."""
        holds = said.version if said is not None and cause == "memory" else 0
        self.confirmed[node] = holds if 0 <= holds <= self.version else 0


def _digest(record: ArrayRecord) -> bytes:
    digest = blake2b(digest_size=32)
    for name, array in record.items():
        digest.update(repr((name, array.dtype, array.shape, len(array.data))).encode())
        digest.update(array.data)
    return digest.digest()


def _same(one: Array, other: Array) -> bool:
    return (one.dtype, one.shape, one.data) == (other.dtype, other.shape, other.data)
