"""Update compressors on Gaussian vectors: bits of real frames, normalised squared error, speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench.measure import transfer
from subbit.codecs import Codec, Shared, Vector, make_codec
from subbit.core.randomness import derive_key, numpy_generator

LENGTHS = (1 << 20, 1_000_003)
"""A power of two, and a prime above a million, which padding to a power of two would double."""


def vector_codecs() -> dict[str, Codec[Vector]]:
    return {
        "float16": make_codec("dense", dtype="float16"),
        "int8": make_codec("int8"),
        "fedcode": make_codec("fedcode"),
        "qsgd": make_codec("qsgd"),
        "topk": make_codec("topk"),
        "eden4": make_codec("eden", bits=4),
        "eden2": make_codec("eden", bits=2),
        "eden1": make_codec("eden", bits=1),
        "drive": make_codec("drive"),
    }


def measure_vectors(report: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row per codec and length."""
    rows = []
    for length in LENGTHS:
        vector = numpy_generator(derive_key(0, "bench vector", length)).standard_normal(length, dtype=np.float32)
        for label, codec in vector_codecs().items():
            measured = transfer(codec, vector, Shared(size=length, key=derive_key(0, "bench rotation")))
            summary = measured.summary(length)
            nmse = normalised_squared_error(measured.decoded, vector)
            rows.append({"codec": label, "length": length, **summary, "nmse": nmse})
        report(f"{len(vector_codecs())} update compressors on {length:,} values")
    return rows


def normalised_squared_error(estimate: Vector, vector: Vector) -> float:
    """|estimate - vector|^2 / |vector|^2."""
    difference = estimate.astype(np.float64) - vector
    return float(np.sum(difference**2) / np.sum(vector.astype(np.float64) ** 2))
