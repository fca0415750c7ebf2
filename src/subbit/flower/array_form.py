"""The form of a broadcast record: names in order, shapes and dtypes, and which arrays are in the coded vector.

A node keeps it, so that a message of changes need not repeat it: the names of a large model are longer than some
changes. It travels as compressed JSON, with the first message and when it changes.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flwr.app import Array, ArrayRecord

from subbit.codecs import Vector
from subbit.codecs.codec import MAXIMUM_SIZE
from subbit.core.errors import FrameError, ModelError
from subbit.flower.layout import FLOATS, Layout
from subbit.models.template import Template

LONGEST = 1 << 24
"""Most bytes of a form before compression: a hundred thousand arrays with long names."""


@dataclass(frozen=True)
class CodedArray:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ArrayForm:
    names: tuple[str, ...]
    """Of all arrays, in the order of the record."""
    coded: tuple[CodedArray, ...]

    @classmethod
    def of(cls, layout: Layout) -> ArrayForm:
        arrays = layout.arrays
        coded = (CodedArray(name, arrays[name].shape, str(arrays[name].dtype)) for name in layout.coded)
        return cls(tuple(arrays), tuple(coded))

    @cached_property
    def template(self) -> Template:
        return Template(tuple(array.name for array in self.coded), tuple(array.shape for array in self.coded))

    @cached_property
    def plain(self) -> tuple[str, ...]:
        coded = set(self.template.names)
        return tuple(name for name in self.names if name not in coded)

    def record(self, vector: Vector, plain: dict[str, Array]) -> ArrayRecord:
        """The arrays as the app expects them."""
        pieces = {}
        for array, offset, count in zip(self.coded, self.template.offsets, self.template.counts, strict=True):
            piece = vector[offset : offset + count]
            # A value near the largest of half precision may have been rounded beyond it.
            most = np.finfo(array.dtype).max
            values = piece.astype(np.float64).clip(-most, most) if array.dtype == "float16" else piece
            pieces[array.name] = Array(np.asarray(values.reshape(array.shape).astype(array.dtype)))
        return ArrayRecord({name: pieces[name] if name in pieces else plain[name] for name in self.names})

    def to_bytes(self) -> bytes:
        fields = {"names": self.names, "coded": [(array.name, array.shape, array.dtype) for array in self.coded]}
        return zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 9)

    @classmethod
    def from_bytes(cls, data: bytes) -> ArrayForm:
        """Raises `FrameError` for anything that `to_bytes` does not write."""
        try:
            inflater = zlib.decompressobj()
            fields = json.loads(inflater.decompress(data, LONGEST))
            coded = tuple(
                CodedArray(_text(name), _shape(shape), _text(dtype)) for name, shape, dtype in fields["coded"]
            )
            form = cls(tuple(map(_text, fields["names"])), coded)
            fits = form.template.size < MAXIMUM_SIZE and {array.dtype for array in coded} <= set(FLOATS)
            ordered = [name for name in form.names if name in set(form.template.names)] == list(form.template.names)
        except (zlib.error, ValueError, TypeError, KeyError, RecursionError, ModelError) as error:
            raise FrameError("template", f"a list of names and shapes that cannot be read: {error}") from None
        if not (inflater.eof and fits and ordered and len(set(form.names)) == len(form.names)):
            raise FrameError("template", "a list of names and shapes that no compressed strategy writes")
        return form


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(length) is int and length >= 0 for length in value):
        raise TypeError(f"{value!r} is no shape")
    return tuple(value)
