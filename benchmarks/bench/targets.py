"""Targets for the codecs, and whether this run met them.

Speeds are those of one machine on one day. A missed target is reported as missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.bench.drifts import DRIFTS

INFINITY = float("inf")
SMALLEST_DRIFT = DRIFTS[0].label


@dataclass(frozen=True)
class Bar:
    """`least` <= value <= `most`."""

    value: float
    most: float = INFINITY
    least: float = -INFINITY

    def as_row(self) -> dict[str, Any]:
        return {"value": self.value, "bar": self._text(), "met": self.least <= self.value <= self.most}

    def _text(self) -> str:
        if self.least == -INFINITY:
            return f"<= {self.most:.4g}"
        return f">= {self.least:.4g}" if self.most == INFINITY else f"{self.least:.4g} to {self.most:.4g}"


def judge(headline: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of the target to {value, bar, met}."""
    return {name: bar.as_row() for name, bar in _bars(headline)}


def _bars(headline: Mapping[str, Any]) -> Iterator[tuple[str, Bar]]:
    yield "exact_flips_over_bound", Bar(headline["exact_flips_over_bound"], most=1.015)
    yield "range_over_bound", Bar(headline["range_over_bound"], most=1.001)
    for name, most in (
        ("rice_ns_per_param", {"encode": 0.2, "decode": 0.4}),
        ("range_ns_per_param", {"encode": 3, "decode": 3}),
        ("range_prior_ns_per_param", {"encode": 4, "decode": 4}),
        ("eden_ns_per_value", {"encode": 15, "decode": 15}),
        ("drive_ns_per_value", {"encode": 15, "decode": 15}),
        ("eden2_ns_per_value", {"encode": 15, "decode": 15}),
    ):
        for way, limit in most.items():
            yield f"{name}.{way}", Bar(headline[name][way], most=limit)
    for way, speedup in headline["range_prior_speedup_over_constriction"].items():
        yield f"range_prior_speedup_over_constriction.{way}", Bar(speedup, least=5)
    yield "sampler_over_memcpy", Bar(headline["sampler_over_memcpy"], most=2)
    yield "sampler_speedup_over_torch_bernoulli", Bar(headline["sampler_speedup_over_torch_bernoulli"], least=10)
    # The reference is queried with one call per position, which an inlined C loop would avoid: hence a second target.
    yield "fuse_query_ns against pyfusefilter", Bar(headline["fuse_query_ns"], most=headline["pyfusefilter_query_ns"])
    yield "fuse_query_ns", Bar(headline["fuse_query_ns"], most=3)
    yield "lane_query_ns", Bar(headline["lane_query_ns"], most=0.5)
    yield "fuse_build_ns_per_key", Bar(headline["fuse_build_ns_per_key"], most=60)
    for name in ("eden1_nmse", "drive_nmse"):
        for length, nmse in headline[name].items():
            yield f"{name}.{length}", Bar(nmse, least=0.566, most=0.576)
    for length, nmse in headline["eden2_nmse"].items():
        yield f"eden2_nmse.{length}", Bar(nmse, most=0.14)
    yield "eden_bits_per_value_at_1000003", Bar(headline["eden_bits_per_value_at_1000003"], most=1.01)
    for drift, ratio in headline["context_over_static"].items():
        yield f"context_over_static, {drift}", Bar(ratio, least=1.8 if drift == SMALLEST_DRIFT else 1 / 1.01)
    yield "context_identical", Bar(float(headline["context_identical"]), least=1)
