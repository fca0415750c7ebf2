"""The plot of docs/codecs.md: bits per parameter against the rate of flips, and the same as multiples of the bound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from svg_files import SETTINGS, save_svg

STYLES: dict[str, tuple[str, str]] = {
    "rice": ("#1f77b4", "-"),
    "range": ("#0b3d91", "-"),
    "bfuse8 4-wise": ("#d62728", "-"),
    "bfuse16 4-wise": ("#8c1a1b", "--"),
    "xor8": ("#ff7f0e", "-."),
    "bloom 1/256": ("#e0a030", ":"),
    "lane": ("#2ca02c", "--"),
    "zlib 6": ("#9a9a9a", "-"),
    "lzma 6": ("#6a6a6a", "--"),
}
"""Exact codes in blue, filters in warm colours and green, general-purpose compressors in grey.

Codecs that would coincide with another line are left out: `flips` takes the smaller of rice and range, constriction
coincides with range, the 3-wise binary fuse filter with lane.
"""


def save_plot(results: Mapping[str, Any], path: Path) -> None:
    """Write an SVG that depends only on the results, so that it changes only when they do."""
    with matplotlib.rc_context(SETTINGS):
        figure, (absolute, relative) = pyplot.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
        rows = results["flips"][str(results["headline_size"])]
        _draw(absolute, rows, "bpp")
        absolute.plot([row["rate"] for row in rows], [row["bound_bpp"] for row in rows], "k:", lw=2, label="bound")
        drifts = results["drifts"]
        absolute.plot(
            [row["flip_rate"] for row in drifts],
            [row["context"]["bpp"] for row in drifts],
            "*",
            color="#7b2cbf",
            markersize=11,
            label="context (four drifts)",
        )
        absolute.axhline(1, color="#cccccc", lw=1, label="packed")
        absolute.set(yscale="log", ylabel="bits per parameter, frames with headers")
        _draw(relative, rows, "over_bound")
        relative.axhline(1, color="black", ls=":", lw=2)
        relative.set(ylabel="multiple of the bound", ylim=(0.7, 3))
        absolute.legend(frameon=False, fontsize=8, ncols=2)
        figure.suptitle(f"{results['headline_size']:,} parameters; the bound knows only how many flips there are")
        save_svg(figure, path)
        pyplot.close(figure)


def _draw(axes: Axes, rows: list[Mapping[str, Any]], key: str) -> None:
    for label, (colour, line) in STYLES.items():
        values = [row["codecs"][label][key] for row in rows]
        axes.plot([row["rate"] for row in rows], values, line, color=colour, lw=1.4, marker=".", label=label)
    axes.set(xscale="log", xlabel="share of parameters that flipped")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes.grid(alpha=0.25, which="major")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
