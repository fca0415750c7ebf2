"""How a codec sees a Flower ArrayRecord: one float vector, and a rest that is sent uncompressed.

Server and client derive the same layout from the broadcast record. Integer arrays never enter the vector, nor do those
whose names the server lists as plain: an error of a few per cent is noise in a weight, but may make a running variance
negative, and it breaks a table of positions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from subbit.codecs import Vector
from subbit.core.errors import FrameError, ModelError
from subbit.models.template import Template

NUMBERS = "biuf"  # Kinds of dtypes: booleans, integers, floats. Never objects.
FLOATS = ("float16", "float32", "float64")


def is_float(array: Array) -> bool:
    return array.dtype in FLOATS


@dataclass(frozen=True)
class Layout:
    """The broadcast record: its arrays by name, and which of them form the vector."""

    arrays: dict[str, NDArray[Any]]
    coded: tuple[str, ...]

    @classmethod
    def of(cls, record: ArrayRecord, plain: Collection[str]) -> Layout:
        coded = tuple(name for name, array in record.items() if is_float(array) and name not in plain)
        return cls({name: array.numpy() for name, array in record.items()}, coded)

    @cached_property
    def plain(self) -> tuple[str, ...]:
        return tuple(name for name in self.arrays if name not in self.coded)

    @cached_property
    def template(self) -> Template:
        return Template(self.coded, tuple(self.arrays[name].shape for name in self.coded))

    @cached_property
    def vector(self) -> Vector:
        """The coded arrays of the broadcast itself."""
        pieces = [self.arrays[name].astype(np.float32).reshape(-1) for name in self.coded]
        return np.concatenate([np.zeros(0, np.float32), *pieces])

    def flatten(self, record: ArrayRecord, against: bool) -> Vector:
        """The coded arrays of a reply as one vector; with `against`, relative to the broadcast."""
        if set(record) != set(self.arrays):
            difference = sorted(set(record) ^ set(self.arrays))
            raise ModelError(
                f"the reply must hold the arrays that arrived, these are in one of them only: {difference}"
            )
        pieces = [np.zeros(0, np.float32)]
        for name in self.coded:
            after, before = record[name].numpy(), self.arrays[name]
            if after.shape != before.shape:
                raise ModelError(f"{name!r} arrived with shape {before.shape} and is sent back with {after.shape}")
            # Half precision is too coarse for a difference; double precision is kept until it is computed.
            wide = np.result_type(before.dtype, np.float32)
            piece = np.subtract(after, before, dtype=wide) if against else after
            pieces.append(piece.astype(np.float32).reshape(-1))
        return np.concatenate(pieces)

    def rest(self, record: ArrayRecord) -> ArrayRecord:
        return ArrayRecord({name: record[name] for name in self.plain})

    def rebuild(self, vector: Vector, rest: ArrayRecord, against: bool) -> ArrayRecord:
        """The record that a client would have sent without compression. `rest` is untrusted and checked here."""
        if set(rest) != set(self.plain):
            difference = sorted(set(rest) ^ set(self.plain))
            raise FrameError("template", f"arrays beside the frame that are missing or not expected: {difference}")
        pieces = dict(zip(self.coded, np.split(vector, self.template.offsets[1:]), strict=False))
        rebuilt = {}
        for name, before in self.arrays.items():
            if name in pieces:
                piece = pieces[name].reshape(before.shape)
                with np.errstate(over="ignore"):
                    values = (before + piece if against else piece).astype(before.dtype)
            else:
                values = read_array(rest[name], before.shape)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise FrameError("value", f"{name!r} holds values that are not finite")
            rebuilt[name] = Array(np.asarray(values))
        return ArrayRecord(rebuilt)


def read_array(array: Array, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of an array that must have this shape. `Array.numpy` would allocate whatever its header says."""
    stream = BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"format {version}")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TypeError, SyntaxError, EOFError) as error:
        raise FrameError("payload", f"an array beside the frame that cannot be read: {error}") from None
    data = array.data[stream.tell() :]
    if found != shape or dtype.kind not in NUMBERS or len(data) != prod(shape) * dtype.itemsize:
        raise FrameError("payload", f"an array beside the frame: {dtype} {found}, {len(data)} bytes, expected {shape}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
