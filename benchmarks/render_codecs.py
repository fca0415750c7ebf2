"""Update the numbers and the plot of docs/codecs.md from benchmarks/results/codecs.json. No number is typed by hand.

    subbit bench codecs --output benchmarks/results/codecs.json
    python benchmarks/render_codecs.py

A generated section of the page is between `<!-- generated: NAME -->` and `<!-- /generated -->`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from page_sections import SECTION as SECTION
from page_sections import Results, filled, table
from plot_codecs import save_plot

from subbit.codecs import registered_codecs

ROOT = Path(__file__).parent.parent
RESULTS, PAGE, PLOT = ROOT / "benchmarks/results/codecs.json", ROOT / "docs/codecs.md", ROOT / "docs/codecs.svg"
RATES = ROOT / "benchmarks/results/vector-rates.json"


def main() -> None:
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(with_sections(PAGE.read_text(), results))
    save_plot(results, PLOT)


def with_sections(page: str, results: Results) -> str:
    return filled(page, results, SECTIONS)


def catalogue(_: Results) -> str:
    rows = (
        (f"`{codec.name}`", str(codec.number), codec.kind.value, "yes" if codec.exact else "no", codec.summary)
        for codec in registered_codecs()
    )
    lines = table(("codec", "number", "payload", "exact", "what it is"), rows).splitlines()
    return "\n".join([lines[0], "|---|---:|---|---|---|", *lines[2:]])


def conditions(results: Results) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        f"Measured on one thread of {machine['cpu']} ({machine['logical_cpus']} logical CPUs, "
        f"{machine['architecture']}, load {machine['load_average_before']} before the run); {versions}."
    )


def targets(results: Results) -> str:
    rows = (
        (f"`{name}`", f"{target['value']:.4g}", target["bar"], "yes" if target["met"] else "**no**")
        for name, target in results["targets"].items()
    )
    met = sum(target["met"] for target in results["targets"].values())
    summary = f"{met} of {len(results['targets'])} are met, at {results['headline_size']:,} places."
    return f"{summary}\n\n{table(('target', 'measured', 'bar', 'met'), rows)}"


def sizes(results: Results) -> str:
    return "\n\n".join(_sizes_of(int(size), rows) for size, rows in results["flips"].items())


def _sizes_of(size: int, rows: list[Results]) -> str:
    headings = ["codec", *(f"{row['rate']:.1%}" for row in rows)]
    body = [["bound, bits per parameter", *(f"{row['bound_bpp']:.5f}" for row in rows)]]
    for label in rows[0]["codecs"]:
        body.append([label, *(f"{row['codecs'][label]['over_bound']:.4f}" for row in rows)])
    return f"d = {size:,}, frame / bound:\n\n{table(headings, body)}"


def speeds(results: Results) -> str:
    rates = (0.001, 0.01, 0.02, 0.1)
    headings = ["codec", *(f"{way} {rate:.1%}" for way in ("encode", "decode") for rate in rates)]
    rows = {row["rate"]: row for row in headline_rows(results)}
    body = []
    for label in rows[rates[0]]["codecs"]:
        times = [rows[rate]["codecs"][label][f"{way}_ns"] for way in ("encode", "decode") for rate in rates]
        body.append([label, *(f"{nanoseconds:.2f}" for nanoseconds in times)])
    return f"d = {results['headline_size']:,}, nanoseconds per parameter:\n\n{table(headings, body)}"


def wrong_flips(results: Results) -> str:
    rows = headline_rows(results)
    lossy = [label for label, codec in rows[0]["codecs"].items() if codec["group"] == "filter"]
    body = [
        [label, *(f"{row['codecs'][label]['false_positives'] / row['ones']:.3g}" for row in rows)] for label in lossy
    ]
    return table(["wrong flips per true flip", *(f"{row['rate']:.1%}" for row in rows)], body)


def kernels(results: Results) -> str:
    sampler, prior, filters = (results["kernels"][name] for name in ("sampler", "range_prior", "filters"))
    body = [
        ("draw a mask", f"{sampler['sampler_ns']:.3f}", f"memcpy of the thresholds {sampler['memcpy_ns']:.3f}"),
        ("", "", f"torch.bernoulli {sampler['torch_bernoulli_ns']:.2f}"),
    ]
    for way in ("encode", "decode"):
        ours, theirs = prior["range_prior"][f"{way}_ns"], prior["constriction"][f"{way}_ns"]
        body.append((f"a probability per parameter, {way}", f"{ours:.2f}", f"constriction {theirs:.2f}"))
    for what, key in (("build, per key", "build_ns_per_key"), ("query, per place", "query_ns")):
        theirs = filters[f"pyfusefilter_{key}"]
        body.append((f"3-wise 8-bit binary fuse filter, {what}", f"{filters[f'fuse_{key}']:.2f}", f"C {theirs:.2f}"))
        body.append((f"lane filter, {what}", f"{filters[f'lane_{key}']:.2f}", ""))
    note = f"The C filter is pyfusefilter's: {filters['pyfusefilter_note']}."
    return f"{table(('kernel, nanoseconds', 'subbit', 'reference'), body)}\n\n{note}"


def drifts(results: Results) -> str:
    headings = ["drift of the logits", "flips, independent", "flips, common", "bfuse8 bpp", "static bpp", "context bpp"]
    body = [
        [
            row["drift"],
            f"{row['flip_rate_independent']:.4f}",
            f"{row['flip_rate']:.4f}",
            f"{row['bfuse8_bpp']:.4f}",
            f"{row['static_bpp']:.4f}",
            f"{row['context']['bpp']:.4f}",
            f"{row['context_over_static']:.2f}",
            f"{row['context']['encode_ns']:.1f} / {row['context']['decode_ns']:.1f}",
        ]
        for row in results["drifts"]
    ]
    return table([*headings, "static / context", "ns, encode / decode"], body)


def counts(results: Results) -> str:
    body = [
        [total, way.replace("_", " "), f"{row['entropy_bpp']:.4f}", f"{row['bpp']:.4f}", f"{row['over_entropy']:.4f}"]
        for total, ways in results["counts_bpp"].items()
        for way, row in ways.items()
    ]
    return table(("masks", "", "entropy, bpp", "frame, bpp", "frame / entropy"), body)


def vectors(results: Results) -> str:
    body = [
        [
            row["codec"],
            f"{row['length']:,}",
            f"{row['bpp']:.3f}",
            f"{row['nmse']:.3g}",
            f"{row['encode_ns']:.1f}",
            f"{row['decode_ns']:.1f}",
        ]
        for row in results["vectors"]
    ]
    return table(("codec", "values", "bits per value", "squared error", "encode ns", "decode ns"), body)


def rates(_: Results) -> str:
    """Of `vector_rates.py`, whose results do not depend on the machine."""
    rows = json.loads(RATES.read_text())["rows"]
    body = [
        [f"{row['bits']}", *(f"{error:.3g}" for error in row["errors"].values()), f"{row['bound']:.3g}"] for row in rows
    ]
    return table(("bits per value", *rows[0]["errors"], "bound"), body)


def headline_rows(results: Results) -> list[Results]:
    rows: list[Results] = results["flips"][str(results["headline_size"])]
    return rows


SECTIONS: dict[str, Callable[[Results], str]] = {
    "catalogue": catalogue,
    "conditions": conditions,
    "targets": targets,
    "sizes": sizes,
    "speeds": speeds,
    "wrong-flips": wrong_flips,
    "kernels": kernels,
    "drifts": drifts,
    "counts": counts,
    "vectors": vectors,
    "rates": rates,
}


if __name__ == "__main__":
    sys.exit(main())
