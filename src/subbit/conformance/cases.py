"""Test cases for the laws of codecs: codecs with options, shared information, and payloads of each kind.

Everything is drawn with `subbit.codecs.sampler`, which is stable: numpy's generators may change between versions, and
the golden frames depend on the values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Bits, Codec, Counts, Kind, Shared, Vector, make_codec, registered_codecs
from subbit.codecs.sampler import sample_bits, uniforms
from subbit.wire import EVERYONE, Address, Direction

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "dense": [{"dtype": "float16"}, {"dtype": "bfloat16"}],
    "int8": [{"stochastic": True}],
    "range": [{"adaptive": True}],
    "bfuse": [{"arity": 3}, {"bits": 16, "container": "png"}, {"bits": 32, "container": "raw"}],
    "xor": [{"bits": 16}],
    "lane": [{"container": "raw"}],
    "bloom": [{"false_positive_rate": 0.001}],
    "klms": [{"candidate_bits": 4}],
    "eden": [{"bits": 2}, {"bits": 4}],
    "qsgd": [{"levels": 4}],
    "trellis": [{"bits": 0.25, "memory": 12}, {"bits": 2.5, "memory": 8}],
    "ternary": [{"fraction": None}],
    "topk": [{"values": "bfloat16"}],
    "fedcode": [{"clusters": 4}],
    "steps": [{"step": 0.25, "row": 16}],
}
"""Options with their own byte layout, in addition to the defaults. Other codecs run with their defaults only."""

DRAWS = frozenset({"klms"})
"""BITS codecs whose receiver draws a mask from the sender's distribution: neither equal nor a superset."""

TEMPLATE = b"template"


@dataclass(frozen=True)
class Subject:
    """A codec with options, and a label suitable for file names and test IDs."""

    label: str
    codec: Codec[Any]


def subjects(codecs: Iterable[type[Codec[Any]]] | None = None) -> list[Subject]:
    """The given codecs or all, each with every layout that it has."""
    found = []
    for codec in registered_codecs() if codecs is None else codecs:
        for options in [{}, *VARIANTS.get(codec.name, [])]:
            label = "-".join([codec.name, *(f"{key}={value}" for key, value in options.items())])
            found.append(Subject(label, make_codec(codec.name, **options)))
    return found


def shared_for(kind: Kind, size: int) -> Shared:
    """Everything that the two sides could share, so that the same cases serve all codecs."""
    # A prior near 0 or 1 at most places, as after training: the cube of a uniform, mirrored at every second place.
    cubes = ((uniforms(1, 0, size).astype(np.uint64) >> np.uint64(12)) ** np.uint64(3) >> np.uint64(28)).astype(
        np.uint32
    )
    thresholds = np.where(np.arange(size) % 2 == 0, cubes, ~cubes).clip(1 << 24, (1 << 32) - 1 - (1 << 24))
    reference = Counts(12, (uniforms(2, 0, size) % 13).astype(np.uint16))
    return Shared(
        size=size,
        key=0x0123456789ABCDEF,
        limit=1000,
        thresholds=thresholds.astype(np.uint32) if kind is Kind.BITS else None,
        uniforms_key=77 if kind is Kind.BITS else None,
        reference=reference if kind is Kind.COUNTS else None,
    )


def payloads(kind: Kind, shared: Shared) -> dict[str, Any]:
    """Ordinary and extreme payloads by name. "typical" is used for the golden frames."""
    if kind is Kind.BITS:
        return _bits_payloads(shared)
    if kind is Kind.COUNTS:
        return _counts_payloads(shared)
    return _vector_payloads(shared)


def _bits_payloads(shared: Shared) -> dict[str, Bits]:
    def constant(threshold: int) -> NDArray[np.uint32]:
        return np.full(shared.size, threshold, dtype=np.uint32)

    assert shared.thresholds is not None
    return {
        "typical": sample_bits(constant((1 << 32) // 20), 11),
        "none": sample_bits(constant(0), 11),
        "all": np.packbits(np.ones(shared.size, dtype=np.bool_), bitorder="little"),
        "half": sample_bits(constant(1 << 31), 12),
        "rare": sample_bits(constant((1 << 32) // 500), 13),
        "drawn from the prior": sample_bits(shared.thresholds, 14),
    }


def _counts_payloads(shared: Shared) -> dict[str, Counts]:
    size = shared.size
    assert shared.reference is not None
    return {
        "typical": Counts(10, (uniforms(21, 0, size) % 4 + 7 * (uniforms(22, 0, size) & 1)).astype(np.uint16)),
        "of no masks": Counts(0, np.zeros(size, dtype=np.uint16)),
        "of one mask": Counts(1, (uniforms(23, 0, size) & 1).astype(np.uint16)),
        "up to the limit": Counts(shared.limit, (uniforms(24, 0, size) % (shared.limit + 1)).astype(np.uint16)),
        "constant": Counts(9, np.full(size, 9, dtype=np.uint16)),
        "the reference": shared.reference,
    }


def _vector_payloads(shared: Shared) -> dict[str, Vector]:
    flat = (uniforms(31, 0, shared.size).astype(np.float64) / 2**31 - 1).astype(np.float32)
    spike = np.zeros(shared.size, dtype=np.float32)
    spike[shared.size // 2 :][:1] = -3.5
    return {
        "typical": flat * flat * flat,  # Products are the same on every machine, powers are not.
        "zero": np.zeros(shared.size, dtype=np.float32),
        "one spike": spike,
        "constant": np.full(shared.size, 0.25, dtype=np.float32),
        "huge": flat * np.float32(1e38),
        "tiny": flat * np.float32(1e-40),
    }


def address_for(codec: Codec[Any], size: int) -> Address:
    """The address of this suite's frames: counts are sent down, everything else up."""
    down = codec.kind is Kind.COUNTS
    return Address(
        direction=Direction.DOWN if down else Direction.UP,
        part=0,
        codec=codec.number,
        template=TEMPLATE,
        round_number=3,
        client=EVERYONE if down else 7,
        size=size,
    )


def complaint(kind: Kind, payload: Any, shared: Shared) -> str | None:
    """What is wrong with the form of a decoded payload; None if valid."""
    if kind is Kind.COUNTS:
        if not isinstance(payload, Counts) or not 0 <= payload.total <= shared.limit:
            return "counts must be Counts with a total between 0 and the limit"
        return _array_complaint(payload.values, np.uint16, shared.size) or (
            "a count exceeds the total" if (payload.values > payload.total).any() else None
        )
    if kind is Kind.VECTOR:
        return _array_complaint(payload, np.float32, shared.size) or (
            None if np.isfinite(payload).all() else "a value is not finite"
        )
    wrong = _array_complaint(payload, np.uint8, (shared.size + 7) // 8)
    if wrong is None and shared.size % 8 and payload[-1] >> (shared.size % 8):
        return "padding bits are not zero"
    return wrong


def _array_complaint(array: Any, dtype: type, size: int) -> str | None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (size,):
        return f"expected {size} values of {np.dtype(dtype)}, found {getattr(array, 'dtype', type(array))}"
    return None


def payload_bytes(payload: Any) -> bytes:
    """Equal bytes mean equal payloads, to the bit (0.0 and -0.0 differ)."""
    if isinstance(payload, Counts):
        return payload.total.to_bytes(4, "little") + payload.values.astype("<u2").tobytes()
    array = np.asarray(payload)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
