"""The picture of the README: score against megabytes, for the jobs of the arena that have a gap and several methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from svg_files import SETTINGS, save_svg

from subbit.arena.standings import Row, Standing

OURS, OTHERS = "#0b3d91", "#8a8a8a"
SHOWN = ("vision", "imagenet", "text", "skewed")
"""In this order; the first that are measured."""
PANELS, LEAST_METHODS, LEAST_SEEDS = 3, 2, 3


def shown(standings: Sequence[Standing]) -> list[Standing]:
    """Jobs with a gap and enough methods whose results are complete."""
    by_name = {found.job.name: found for found in standings}
    ready = [by_name[name] for name in SHOWN if name in by_name and by_name[name].gap is not None]
    return [each for each in ready if each.gap and each.gap.width and len(complete(each)) >= LEAST_METHODS][:PANELS]


def complete(found: Standing) -> list[Row]:
    return [row for row in found.rows if row.role == "method" and row.seeds >= LEAST_SEEDS]


def save_plot(standings: Sequence[Standing], path: Path) -> None:
    """Write an SVG that depends only on the results, so that it changes only when they do."""
    found = shown(standings)
    if not found:
        return
    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(
            1, len(found), figsize=(4.6 * len(found), 3.8), layout="constrained", squeeze=False
        )
        for each, panel in zip(found, axes[0], strict=True):
            _draw(panel, each)
        save_svg(figure, path)
        pyplot.close(figure)


def _draw(axes: Axes, found: Standing) -> None:
    for row in found.rows:
        if row.role != "method" and row.score is not None and row.seeds >= LEAST_SEEDS:
            axes.axhline(row.score, color="black", lw=1, ls=":" if row.role == "floor" else "--")
            axes.annotate(row.method, (1, row.score), (-2, 2), xycoords=("axes fraction", "data"),
                          textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    for row in complete(found):
        assert row.total_mb is not None
        assert row.score is not None
        colour = OURS if row.method.startswith("subbit") else OTHERS
        axes.errorbar(row.total_mb, row.score, yerr=row.spread, fmt="o", color=colour, capsize=2, markersize=5)
        axes.annotate(row.method, (row.total_mb, row.score), (5, 4), textcoords="offset points", color=colour)
    axes.set(xscale="log", xlabel="megabytes, both ways, all clients, whole run", ylabel=found.rows[0].score_name)
    axes.set_title(found.job.header.what.split(":")[0], fontsize=9)
    axes.margins(x=0.25, y=0.15)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
