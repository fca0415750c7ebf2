"""Interface of codecs.

A *payload* is what a method wants to send; a *codec* turns it into bytes and back; `wire.frame` wraps those bytes.
There are three kinds of payload:

    BITS    packed bits, uint8 array of ceil(size / 8) bytes, bit i is bit (i % 8) of byte i // 8, padding bits 0
    COUNTS  `Counts`: how many of `total` masks had a one at each position
    VECTOR  float32 array of `size` values

`Shared` is what sender and receiver both know before a frame arrives. A codec may use all of it on both sides and must
trust nothing else: `decode` checks every byte, allocates memory in proportion to `shared.size` and never to a number it
has read, and raises `PayloadError` for anything that `encode` could not have written. Codecs depend on numpy and numba,
not on models or networks.

A codec is a frozen dataclass whose fields are its options, decorated with `@register("codec", NAME)` or, if the class
has a `name`, with `@register_codec`. Every registered codec is tested by the conformance suite
(`subbit.conformance.codec_laws`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import ConfigError
from subbit.core.registry import Registry, is_ours, make_registry

Bits = NDArray[np.uint8]
Vector = NDArray[np.float32]
OTHERS = range(192, 256)
"""Wire numbers for third-party codecs. Those of subbit will always be below."""
MAXIMUM_SIZE = 1 << 31  # Indices are 32-bit integers in every kernel.


class Kind(Enum):
    BITS = "bits"
    COUNTS = "counts"
    VECTOR = "vector"


@dataclass(frozen=True)
class Counts:
    """`values[i]` of `total` masks had a one at position i. `values` is uint16 and never exceeds `total`."""

    total: int
    values: NDArray[np.uint16]


@dataclass(frozen=True)
class Shared:
    """What both sides know before the frame arrives."""

    size: int
    """Number of positions (bits, counts or values)."""
    key: int = 0
    """64-bit key for shared randomness: hash seeds of filters, rotations, candidates."""
    limit: int = 65535
    """Largest `total` that a receiver of COUNTS accepts."""
    thresholds: NDArray[np.uint32] | None = None
    """BITS: the prior of each position, P(one) = thresholds[i] / 2**32, if both sides know it."""
    uniforms_key: int | None = None
    """BITS that are flips: key of the uniforms u_i from which the reference mask [u_i < thresholds[i]] was drawn."""
    reference: Counts | None = None
    """COUNTS: an earlier broadcast that both sides still have."""


Payload = TypeVar("Payload")


class Codec(ABC, Generic[Payload]):
    """Encodes a payload as bytes and decodes it. Subclasses are frozen dataclasses; equal options give equal bytes."""

    name: ClassVar[str]
    number: ClassVar[int]
    """Identifies the codec on the wire. Never reused. Third-party codecs: see `OTHERS`."""
    kind: ClassVar[Kind]
    exact: ClassVar[bool]
    """decode(encode(x)) == x for every payload."""
    summary: ClassVar[str]
    """One line for `subbit list codecs`."""

    @abstractmethod
    def encode(self, payload: Payload, shared: Shared) -> bytes: ...

    @abstractmethod
    def decode(self, data: bytes, shared: Shared) -> Payload: ...

    def fixed_length(self, size: int) -> int | None:
        """Number of bytes of every payload of this many positions; None if it depends on their values."""
        return None

    def contractive(self) -> Codec[Payload]:
        """VECTOR: the codec for sending differences, where the loss of one message is part of the next difference.

        E |x - decode(encode(x))|^2 must be below |x|^2, or the loss grows from message to message. An unbiased codec
        with a large error does not satisfy this. It returns a variant of itself whose sender scales the estimate to be
        nearest to x. Receivers decode both in the same way.
        """
        return self


CodecClass = TypeVar("CodecClass", bound=type[Codec[Any]])


def _check(name: str, codec: Any) -> None:
    """Check that the wire number is unique and that third-party codecs do not use one reserved for subbit."""
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise ConfigError(f"codec {name!r}: needs a class that extends subbit.codecs.Codec")
    number = getattr(codec, "number", None)
    if type(number) is not int or not 0 <= number <= OTHERS[-1]:
        raise ConfigError(f"codec {name!r}: needs a number, from {OTHERS[0]} to {OTHERS[-1]}")
    if number not in OTHERS and not is_ours(codec):
        raise ConfigError(f"codec {name!r} ({number}): numbers below {OTHERS[0]} are subbit's own; choose another")
    for known in CODECS.loaded():
        if known.number == number and known.name != name:
            raise ConfigError(f"codec {name!r} ({number}) clashes with {known.name!r} ({number}): choose another")


CODECS: Registry[type[Codec[Any]]] = make_registry("codec", check=_check)


def register_codec(codec: CodecClass) -> CodecClass:
    """Class decorator, equivalent to `@register("codec", codec.name)`. Rejects a name or a number that is taken."""
    CODECS.register(codec.name, codec)
    return codec


def registered_codecs() -> Iterator[type[Codec[Any]]]:
    return iter(sorted(CODECS.values(), key=lambda codec: codec.number))


def make_codec(name: str, **options: Any) -> Codec[Any]:
    """Create a codec by name and options, e.g. `make_codec("bfuse", bits=8, arity=4)`."""
    try:
        return CODECS.find(name)(**options)
    except TypeError as error:
        raise ConfigError(f"codec {name!r}: {error}") from None
