"""Flips at every rate: bytes of each codec against the bound, and its speed.

The bound is log2 C(size, ones): if all sets with this number of flips are equally likely, no code can be shorter on
average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.bench.measure import Coder, transfer
from benchmarks.bench.references import Constriction, Lzma, Zlib
from subbit.codecs import Bits, Shared, make_codec
from subbit.codecs.packed import count_ones, xor_bits
from subbit.codecs.sampler import sample_bits
from subbit.core.randomness import derive_key

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
EXACT, FILTER, REFERENCE = "exact", "filter", "reference"


def contenders() -> dict[str, tuple[str, Coder]]:
    """Label to (group, codec)."""
    ours: dict[str, tuple[str, Coder]] = {
        "packed": (EXACT, make_codec("packed")),
        "rice": (EXACT, make_codec("rice")),
        "range": (EXACT, make_codec("range")),
        "flips": (EXACT, make_codec("flips")),
        "bfuse8 4-wise": (FILTER, make_codec("bfuse", bits=8, arity=4, container="deflate")),
        "bfuse16 4-wise": (FILTER, make_codec("bfuse", bits=16, arity=4, container="deflate")),
        "bfuse8 3-wise": (FILTER, make_codec("bfuse", bits=8, arity=3, container="deflate")),
        "xor8": (FILTER, make_codec("xor")),
        "bloom 1/256": (FILTER, make_codec("bloom", false_positive_rate=1 / 256)),
        "lane": (FILTER, make_codec("lane")),
    }
    theirs: dict[str, tuple[str, Coder]] = {
        "constriction": (REFERENCE, Constriction()),
        "zlib 6": (REFERENCE, Zlib()),
        "lzma 6": (REFERENCE, Lzma()),
    }
    return {**ours, **theirs}


def log2_binomial(size: int, ones: int) -> float:
    """log2 C(size, ones)."""
    return (math.lgamma(size + 1) - math.lgamma(ones + 1) - math.lgamma(size - ones + 1)) / math.log(2)


def random_flips(size: int, rate: float) -> Bits:
    """Independent flips, each position with that probability."""
    thresholds = np.full(size, round(rate * 2**32), dtype=np.uint32)
    return sample_bits(thresholds, derive_key(0, "bench flips", size))


def measure_flips(size: int, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row per rate."""
    rows = []
    for rate in RATES:
        flips = random_flips(size, rate)
        ones = count_ones(flips)
        row: dict[str, Any] = {"size": size, "rate": rate, "ones": ones, "bound_bpp": log2_binomial(size, ones) / size}
        row["codecs"] = {label: _measure_codec(*contender, flips, row) for label, contender in contenders().items()}
        rows.append(row)
        report(f"{size:,} places, {rate:.1%} flips: best exact code {best_exact(row):.4f} x the bound")
    return rows


def best_exact(row: Mapping[str, Any]) -> float:
    """The smallest of our exact codes at one rate, as a multiple of the bound."""
    return min(float(codec["over_bound"]) for codec in row["codecs"].values() if codec["group"] == EXACT)


def _measure_codec(group: str, coder: Coder, flips: Bits, row: Mapping[str, Any]) -> dict[str, Any]:
    shared = Shared(size=row["size"], key=derive_key(0, "bench filters"))
    measured = transfer(coder, flips, shared, warm_up=group != REFERENCE)
    wrong = xor_bits(measured.decoded, flips)
    false_negatives = count_ones(np.bitwise_and(wrong, flips))
    summary = measured.summary(shared.size)
    return {
        "group": group,
        **summary,
        "over_bound": summary["bpp"] / row["bound_bpp"],
        "false_positives": count_ones(wrong) - false_negatives,
        "false_negatives": false_negatives,
    }
