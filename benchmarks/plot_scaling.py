"""The plots of docs/performance.md: time and memory of a round against clients and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from svg_files import SETTINGS, save_svg

BLUE, RED = "#1f77b4", "#d62728"


def save_plot(results: Mapping[str, Any], path: Path) -> None:
    """Write an SVG that depends only on the results, so that it changes only when they do."""
    with matplotlib.rc_context(SETTINGS):
        figure, panels = pyplot.subplots(2, 2, figsize=(10, 6.4), layout="constrained")
        for column, (key, unit) in enumerate((("clients", "clients of the run"), ("parameters", "parameters"))):
            for row, (value, label) in enumerate((("cpu", "CPU seconds of a round"), ("peak_mb", "peak memory, MB"))):
                axes = panels[row][column]
                curves = {"all": ("all take part", BLUE), "few": ("ten take part", RED)}
                for name, (legend, colour) in curves.items() if key == "clients" else (("parameters", ("", BLUE)),):
                    _draw(axes, results[name], key, value, legend, colour)
                axes.set(xlabel=unit, ylabel=label)
        panels[0][0].legend(frameon=False)
        save_svg(figure, path)
        pyplot.close(figure)


def _draw(axes: Axes, rows: list[Mapping[str, Any]], key: str, value: str, legend: str, colour: str) -> None:
    points = [row[key] for row in rows], [row[value] for row in rows]
    axes.plot(*points, color=colour, marker="o", ms=4, lw=1.4, label=legend)
    axes.set(xscale="log", yscale="log")
    axes.grid(alpha=0.25, which="major")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
