"""The score against megabytes in both directions, as SVG text: which method is best at which cost.

One line per method, a point per evaluated round, means over seeds. The byte axis is logarithmic, since methods differ
by factors. Bytes are those of the runs' frames, one-off costs included.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from subbit.report.scatter import COLOURS

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 960, 520, 60, 40, 50, 330
DASHES = ("", "7 3", "2 3")
"""Line styles; with seven colours, more than enough combinations to tell lines apart."""

Point = tuple[float, float]
"""Megabytes and score."""


def frontier_plot(comparison: Mapping[str, Any]) -> str:
    lines = {label: mean_curve(runs) for label, runs in comparison["runs"].items()}
    points = [point for line in lines.values() for point in line]
    if not points:
        return _svg(["<text x='20' y='30'>no round was evaluated</text>"])
    low, high = (bound(math.log10(point[0]) for point in points) for bound in (min, max))
    bottom, top = (bound(point[1] for point in points) for bound in (min, max))
    axes = _Axes(low, max(high, low + 0.1), bottom, max(top, bottom + 0.01))
    first = next(iter(comparison["runs"].values()))[0]
    drawn = axes.grid(first.get("score_name", "accuracy"))
    if comparison.get("target") is not None:
        y = axes.y(float(comparison["target"]))
        drawn.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - LEGEND}" stroke="black" stroke-dasharray="4 4"/>')
        drawn.append(f'<text x="{LEFT + 4}" y="{y - 5:.1f}">target {comparison["target"]:.3f}</text>')
    for number, (label, line) in enumerate(lines.items()):
        drawn += _line(axes, number, label, line)
    return _svg(drawn)


def scores_by_round(summary: Mapping[str, Any]) -> Sequence[float | None]:
    """Summaries of earlier versions only have accuracies."""
    found: Sequence[float | None] = summary.get("score_by_round", summary.get("accuracy_by_round", ()))
    return found


def mean_curve(runs: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Means over seeds of the rounds that all of them evaluated, without points at zero bytes."""
    curve = []
    for megabytes, scores in zip(
        zip(*(run["bytes_by_round"] for run in runs), strict=False),
        zip(*(scores_by_round(run) for run in runs), strict=False),
        strict=True,
    ):
        if None not in scores and all(megabytes):
            curve.append((statistics.fmean(megabytes) / 1e6, statistics.fmean(scores)))
    return curve


class _Axes:
    def __init__(self, low: float, high: float, bottom: float, top: float) -> None:
        self.low, self.high, self.bottom, self.top = low, high, bottom, top

    def x(self, megabytes: float) -> float:
        share = (math.log10(megabytes) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEGEND - LEFT)

    def y(self, score: float) -> float:
        share = (score - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def grid(self, score: str) -> list[str]:
        """A line and a label for every 1, 2 and 5 of every power of ten, and for every even step of the score."""
        drawn = []
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for megabytes in (digit * 10.0**power for power in powers for digit in (1, 2, 5)):
            if self.low <= math.log10(megabytes) <= self.high:
                x = self.x(megabytes)
                drawn.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
                drawn.append(f'<text x="{x:.1f}" y="{HEIGHT - 32}" text-anchor="middle">{megabytes:g}</text>')
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2) if (self.top - self.bottom) / step <= 10)
        for number in range(math.ceil(self.bottom / step), math.floor(self.top / step) + 1):
            y = self.y(number * step)
            drawn.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - LEGEND}" stroke="#dddddd"/>')
            drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:.2f}</text>')
        middle = (LEFT + WIDTH - LEGEND) / 2
        drawn.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">MB both ways, all clients</text>')
        drawn.append(f'<text x="{LEFT - 45}" y="{TOP - 18}">{escape(score)}</text>')
        return drawn


def _line(axes: _Axes, number: int, label: str, line: Sequence[Point]) -> list[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" fill="none"'
    places = [(axes.x(megabytes), axes.y(score)) for megabytes, score in line]
    row = TOP + 10 + 20 * number
    left = WIDTH - LEGEND + 16
    return [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" {style}/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places),
        f'<path d="M{left} {row}h26" {style}/>',
        f'<text x="{left + 32}" y="{row + 4}">{escape(label)}</text>',
    ]


def _svg(drawn: Sequence[str]) -> str:
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return "\n".join(
        [f'{start} font-size="12">', '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>", ""]
    )
