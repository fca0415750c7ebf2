"""`subbit bench codecs`: sizes against the bound and speeds against references, in one run on one thread.

Bytes are those of whole frames, header included. Times are those of `encode` and `decode` alone (see
`benchmarks.bench.measure`), in nanoseconds per position. The headline is for 7 million positions, or for the only size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.bench.drifts import measure_counts, measure_drifts
from benchmarks.bench.flips import best_exact, measure_flips
from benchmarks.bench.kernels import FILTER_RATE, measure_kernels
from benchmarks.bench.measure import versions
from benchmarks.bench.references import check_references
from benchmarks.bench.targets import judge
from benchmarks.bench.vectors import LENGTHS, measure_vectors
from subbit.core.errors import ConfigError
from subbit.core.machine import machine
from subbit.wire import HEADER_BYTES

HEADLINE_SIZE = 7_000_000
DEFAULT_SIZES = (1_000_000, HEADLINE_SIZE, 35_389_440)
"""The last one is all weights of the last five blocks of ViT-B."""
SMALLEST_SIZE = 10_000
"""With fewer positions some rates have too few flips to be meaningful."""
RICE_RATE = 0.02
WAYS = ("encode", "decode")


def run_codec_benchmark(sizes: Sequence[int], report: Callable[[str], None]) -> dict[str, Any]:
    """Run all measurements. `report` is called with a line after each of them."""
    if not sizes or min(sizes) < SMALLEST_SIZE:
        raise ConfigError(f"a benchmark needs at least {SMALLEST_SIZE:,} places, not {min(sizes, default=0):,}")
    check_references()
    headline_size = HEADLINE_SIZE if HEADLINE_SIZE in sizes else sizes[0]
    results: dict[str, Any] = {"versions": versions(), "machine": machine(), "headline_size": headline_size}
    kernels = measure_kernels(headline_size, report)
    drifts = measure_drifts(headline_size, report)
    counts = measure_counts(headline_size, report)
    vectors = measure_vectors(report)
    flips = {str(size): measure_flips(size, report) for size in sizes}
    headline = {
        **_flips_headline(flips[str(headline_size)]),
        **_kernels_headline(kernels),
        **_vectors_headline(vectors),
        "context_over_static": {row["drift"]: row["context_over_static"] for row in drifts},
        "context_identical": all(row["identical"] for row in drifts),
        "counts_bpp": counts,
    }
    results |= {**headline, "targets": judge(headline)}
    results |= {"kernels": kernels, "drifts": drifts, "vectors": vectors, "flips": flips}
    rounded: dict[str, Any] = _rounded(results)
    return rounded


def _flips_headline(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    (rice,) = (row["codecs"]["rice"] for row in rows if row["rate"] == RICE_RATE)
    ranges = [row["codecs"]["range"] for row in rows]
    return {
        "exact_flips_over_bound": max(best_exact(row) for row in rows),
        "range_over_bound": max(codec["over_bound"] for codec in ranges),
        # Without the frame header, which matters most for small payloads.
        "range_payload_over_bound": max(
            codec["over_bound"] * (1 - HEADER_BYTES / codec["frame_bytes"]) for codec in ranges
        ),
        "rice_ns_per_param": {way: rice[f"{way}_ns"] for way in WAYS},
        # The slowest of all rates.
        "range_ns_per_param": {way: max(codec[f"{way}_ns"] for codec in ranges) for way in WAYS},
    }


def _kernels_headline(kernels: Mapping[str, Any]) -> dict[str, Any]:
    sampler, filters = kernels["sampler"], kernels["filters"]
    ours, constriction = kernels["range_prior"]["range_prior"], kernels["range_prior"]["constriction"]
    return {
        "range_prior_ns_per_param": {way: ours[f"{way}_ns"] for way in WAYS},
        "range_prior_speedup_over_constriction": {way: constriction[f"{way}_ns"] / ours[f"{way}_ns"] for way in WAYS},
        "sampler_over_memcpy": sampler["sampler_ns"] / sampler["memcpy_ns"],
        "sampler_speedup_over_torch_bernoulli": sampler["torch_bernoulli_ns"] / sampler["sampler_ns"],
        **{
            key: filters[key]
            for key in ("fuse_query_ns", "fuse_build_ns_per_key", "pyfusefilter_query_ns", "lane_query_ns")
        },
    }


def _vectors_headline(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_name = {(row["codec"], row["length"]): row for row in rows}

    def errors(codec: str) -> dict[str, float]:
        return {str(length): by_name[codec, length]["nmse"] for length in LENGTHS}

    def slower(codec: str) -> dict[str, float]:
        return {way: max(by_name[codec, length][f"{way}_ns"] for length in LENGTHS) for way in WAYS}

    return {
        "eden1_nmse": errors("eden1"),
        "drive_nmse": errors("drive"),
        "eden2_nmse": errors("eden2"),
        "eden_ns_per_value": slower("eden1"),
        "drive_ns_per_value": slower("drive"),
        "eden2_ns_per_value": slower("eden2"),
        "eden_bits_per_value_at_1000003": by_name["eden1", 1_000_003]["bpp"],
    }


def benchmark_table(results: Mapping[str, Any]) -> Table:
    """Frames as multiples of the bound at each rate, and speeds at 2%, for the headline size. Fits into 80 columns."""
    rows = results["flips"][str(results["headline_size"])]
    title = (
        f"{results['headline_size']:,} places: frame / bound by rate of flips\nns per place at 2%, false per true at 1%"
    )
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("codec", no_wrap=True)
    for heading in (*(f"{row['rate']:.1%}" for row in rows), "enc.", "dec.", "false"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("bound, bpp", *(f"{row['bound_bpp']:.4f}".lstrip("0") for row in rows))
    by_rate = {row["rate"]: row for row in rows}
    for label in rows[0]["codecs"]:
        timed, wrong = by_rate[RICE_RATE]["codecs"][label], by_rate[FILTER_RATE]
        ratios = [row["codecs"][label]["over_bound"] for row in rows]
        table.add_row(
            label,
            *(f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}" for ratio in ratios),
            f"{timed['encode_ns']:.2f}",
            f"{timed['decode_ns']:.2f}",
            f"{wrong['codecs'][label]['false_positives'] / wrong['ones']:.3f}",
        )
    return table


def targets_table(results: Mapping[str, Any]) -> Table:
    """Every target, the measured value, and whether it was met."""
    table = Table(title="targets", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("target", "measured", "bar", "met"):
        table.add_column(heading, justify="left" if heading == "target" else "right")
    for name, target in results["targets"].items():
        table.add_row(name, f"{target['value']:.4g}", target["bar"], "yes" if target["met"] else "[bold red]NO")
    return table


def _rounded(value: Any) -> Any:
    """Round to six digits, more than the precision of these numbers, to keep the committed file readable."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
