"""Squared error of EDEN and of the trellis code at several rates, and the bound: `python benchmarks/vector_rates.py`.

A normal vector of 2^16 values, so that the error is that of any long vector after its rotation. Writes
benchmarks/results/vector-rates.json, which `render_codecs.py` shows. Takes half a minute.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from subbit.codecs import Codec, Shared, Vector, make_codec
from subbit.core.randomness import derive_key, numpy_generator

OUTPUT = Path(__file__).parent / "results" / "vector-rates.json"
RATES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
LENGTH = 1 << 16


def codecs(bits: float) -> dict[str, Codec[Vector]]:
    trellises = {
        f"trellis, memory={memory}": make_codec("trellis", bits=bits, memory=memory) for memory in (6, 8, 10, 12)
    }
    return {"eden": make_codec("eden", bits=bits), **trellises}


def squared_error(codec: Codec[Vector], vector: Vector) -> float:
    """|estimate - x|^2 / |x|^2."""
    shared = Shared(vector.size, key=derive_key(0, "bench rotation"))
    difference = codec.decode(codec.encode(vector, shared), shared).astype(np.float64) - vector
    return float(np.sum(difference**2) / np.sum(vector.astype(np.float64) ** 2))


def main() -> None:
    vector = numpy_generator(derive_key(0, "bench vector", LENGTH)).standard_normal(LENGTH, dtype=np.float32)
    rows = []
    for bits in RATES:
        errors = {name: round(squared_error(codec, vector), 5) for name, codec in codecs(bits).items()}
        rows.append({"bits": bits, "errors": errors, "bound": 1 / math.expm1(bits * math.log(4))})
        print(bits, *(f"{name} {error:.3f}" for name, error in errors.items()), f"bound {rows[-1]['bound']:.3f}")
    OUTPUT.write_text(json.dumps({"values": LENGTH, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
