"""Gain from common random numbers and the broadcast: the context coder on four drifts, and counts on the downlink.

A server and a client draw masks [u < theta_g] and [u < theta_k] from the same uniforms u, so a position flips with
probability |theta_k - theta_g|. The four drifts describe how a round of training moves the logits of theta_g =
sigmoid(N(0, 2)), where 2 is the standard deviation: all a little, some, few, or all a lot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench.flips import log2_binomial
from benchmarks.bench.measure import frame_length, transfer
from subbit.codecs import Bits, Counts, Shared, make_codec
from subbit.codecs.packed import add_bits_to_counts, count_ones, xor_bits
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.core.randomness import derive_key, numpy_generator

Logits = NDArray[np.float64]

LOGIT_DEVIATION = 2.0
STATIC_CODECS = ("rice", "range")
"""Exact codes that only know the number of flips."""
MASKS_OF_COUNTS = (10, 30)


@dataclass(frozen=True)
class Drift:
    """This share of the logits moves by N(0, deviation)."""

    label: str
    share: float
    deviation: float


DRIFTS = (
    Drift("dense N(0, .1)", 1.0, 0.1),
    Drift("10% N(0, 1)", 0.1, 1.0),
    Drift("1% N(0, 2)", 0.01, 2.0),
    Drift("dense N(0, 1)", 1.0, 1.0),
)


def server_logits(size: int) -> Logits:
    return numpy_generator(derive_key(0, "bench logits")).normal(0, LOGIT_DEVIATION, size)


def drifted(logits: Logits, drift: Drift) -> Logits:
    generator = numpy_generator(derive_key(0, f"bench drift {drift.label}"))
    step = generator.normal(0, drift.deviation, logits.size)
    if drift.share < 1:
        step[generator.random(logits.size) >= drift.share] = 0
    return logits + step


def thresholds_of_logits(logits: Logits) -> Thresholds:
    """floor(2^32 sigmoid), clamped away from 0 and 1 like the broadcast of a server."""
    return np.clip(2.0**32 / (1 + np.exp(-logits)), 1, 2**32 - 1).astype(np.uint32)


def measure_drift(drift: Drift, logits: Logits) -> dict[str, Any]:
    """Flips of one client under one drift, with static codes, DeltaMask's filter and the context coder."""
    size = logits.size
    uniforms_key = derive_key(0, "bench mask", 1, 7)
    server, client = thresholds_of_logits(logits), thresholds_of_logits(drifted(logits, drift))
    reference = sample_bits(server, uniforms_key)
    flips = xor_bits(reference, sample_bits(client, uniforms_key))
    independent = xor_bits(reference, sample_bits(client, derive_key(0, "bench independent mask")))
    shared = Shared(size=size, key=derive_key(0, "bench filters"), thresholds=server, uniforms_key=uniforms_key)

    def bytes_of(name: str) -> int:
        codec = make_codec(name)
        return frame_length(codec, codec.encode(flips, shared), size)

    static = min(bytes_of(name) for name in STATIC_CODECS)
    context = transfer(make_codec("context"), flips, shared)
    return {
        "drift": drift.label,
        "flip_rate": count_ones(flips) / size,
        "flip_rate_independent": count_ones(independent) / size,
        "bound_bpp": log2_binomial(size, count_ones(flips)) / size,
        "independent_bound_bpp": log2_binomial(size, count_ones(independent)) / size,
        "bfuse8_bpp": 8 * bytes_of("bfuse") / size,
        "static_bpp": 8 * static / size,
        "context": context.summary(size),
        "context_over_static": static / context.frame_bytes,
        "identical": bool(np.array_equal(context.decoded, flips)),
    }


def measure_drifts(size: int, report: Callable[[str], None]) -> list[dict[str, Any]]:
    logits, rows = server_logits(size), []
    for drift in DRIFTS:
        row = measure_drift(drift, logits)
        rows.append(row)
        report(f"drift {drift.label}: static {row['static_bpp']:.4f}, context {row['context']['bpp']:.4f} bpp")
    return rows


def measure_counts(size: int, report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Counts of K masks drawn after the first drift, coded alone and against the counts from before it."""
    before = server_logits(size)
    after = drifted(before, DRIFTS[0])
    rows = {}
    for total in MASKS_OF_COUNTS:
        reference = _counts(total, thresholds_of_logits(before), "bench counts before")
        counts = _counts(total, thresholds_of_logits(after), "bench counts after")
        joint = reference.values.astype(np.int64) * (total + 1) + counts.values
        conditional = entropy(joint) - entropy(reference.values)
        rows[str(total)] = {
            "alone": _measure_counts(counts, None, entropy(counts.values)),
            "against_reference": _measure_counts(counts, reference, conditional),
        }
        report(f"counts of {total}: {rows[str(total)]['alone']['bpp']:.4f} bpp alone")
    return rows


def entropy(symbols: NDArray[Any]) -> float:
    """Bits per symbol of the empirical distribution."""
    frequencies = np.bincount(symbols.ravel())
    chances = frequencies[frequencies > 0] / symbols.size
    return float(-(chances * np.log2(chances)).sum())


def _counts(total: int, thresholds: Thresholds, purpose: str) -> Counts:
    values = np.zeros(thresholds.size, dtype=np.uint16)
    for client in range(total):
        mask: Bits = sample_bits(thresholds, derive_key(0, purpose, 0, client))
        add_bits_to_counts(mask, values)
    return Counts(total, values)


def _measure_counts(counts: Counts, reference: Counts | None, entropy_bpp: float) -> dict[str, Any]:
    size = counts.values.size
    measured = transfer(make_codec("counts"), counts, Shared(size=size, reference=reference))
    summary = measured.summary(size)
    identical = measured.decoded.total == counts.total and np.array_equal(measured.decoded.values, counts.values)
    return {
        **summary,
        "entropy_bpp": entropy_bpp,
        "over_entropy": summary["bpp"] / entropy_bpp,
        "identical": bool(identical),
    }
