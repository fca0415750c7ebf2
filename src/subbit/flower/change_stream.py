"""How a sequence of global arrays goes down: frames that all nodes follow, so that all of them hold the same.

    version 1     the whole vector, by `first` (8 bits a value)
    version v     its change against what is held after version v - 1, by `change` (e.g. 1 bit a value)
    snapshot      what is held after a version, exactly, in float32

Server and nodes decode the same frames. What a lossy frame leaves out is the difference between the arrays and what is
held, and so part of the next change: nothing is lost for good, and no residual is stored. This needs a contractive
codec (`Codec.contractive`). The *lineage* is a random word of the server's: versions of different lineages have nothing
in common, and frames of one are refused in another.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subbit.codecs import Codec, Shared, Vector
from subbit.codecs.dense import Dense
from subbit.core.errors import PayloadError
from subbit.core.randomness import derive_key
from subbit.models.template import Template
from subbit.wire.channel import Channel, Part, down


@dataclass(frozen=True)
class DownCodecs:
    """What both sides of a compressed downlink agree on."""

    change: Codec[Vector]
    first: Codec[Vector]


@dataclass(frozen=True)
class ChangeStream:
    codecs: DownCodecs
    lineage: str
    template: Template

    def pack(self, target: Vector, held: Vector, version: int) -> bytes:
        """The frame of this version, for receivers that hold `held`."""
        return self._channel(version).pack(target - held, down(version), self._shared(version))

    def follow(self, held: Vector, frame: bytes, version: int) -> Vector:
        """What a receiver holds after this frame; a new array. `FrameError` for any other bytes."""
        change = self._channel(version).unpack(frame, down(version), self._shared(version))[0]
        with np.errstate(over="ignore"):
            return _finite(np.asarray(held + change, np.float32))

    def nothing(self) -> Vector:
        """What is held before version 1."""
        return np.zeros(self.template.size, np.float32)

    def pack_snapshot(self, held: Vector, version: int) -> bytes:
        return self._snapshots.pack(held, down(version))

    def open_snapshot(self, frame: bytes, version: int) -> Vector:
        return _finite(self._snapshots.unpack(frame, down(version))[0])

    def _channel(self, version: int) -> Channel:
        return self._first if version == 1 else self._change

    @cached_property
    def _first(self) -> Channel:
        return self._made("first", self.codecs.first)

    @cached_property
    def _change(self) -> Channel:
        return self._made("change", self.codecs.change)

    @cached_property
    def _snapshots(self) -> Channel:
        return self._made("snapshot", Dense())

    def _made(self, name: str, codec: Codec[Vector]) -> Channel:
        digest = self.template.digest(f"flower-down/{name}/{codec!r}/{self.lineage}")
        return Channel(Part(name, codec, self.template.size), digest)

    def _shared(self, version: int) -> Shared:
        return Shared(self.template.size, key=derive_key(0, "flower-compress-down", version))


def checksum(held: Vector) -> int:
    """By which a server notices that a node holds something else, e.g. because its processor rounds differently."""
    return zlib.crc32(np.ascontiguousarray(held).data)


def _finite(vector: Vector) -> Vector:
    if not np.isfinite(vector).all():
        raise PayloadError("the arrays would hold values that are not finite", cause="value")
    return vector
