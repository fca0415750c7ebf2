"""A scatter plot as SVG text: points of several groups, with a larger one at the centre of each."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""A colour-blind safe palette (Paul Tol), repeated if there are more groups."""
WIDTH, HEIGHT, MARGIN, LINE = 720, 480, 40, 18


def scatter(groups: dict[str, NDArray[np.float64]], title: str) -> str:
    """Groups of points [n, 2] by label. Both axes have the same scale, so that distances are comparable."""
    everything = np.concatenate(list(groups.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN - LINE * len(groups)])
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    top = MARGIN + LINE * len(groups)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="{LINE}">{escape(title)}</text>',
    ]
    for number, (label, points) in enumerate(groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = (points - low) * scale + np.array([MARGIN, top])
        lines += [_circle(place, 2, colour, 0.4) for place in places]
        lines.append(_circle(places.mean(axis=0), 7, colour, 1.0))
        row = 2 * LINE + LINE * number
        lines.append(_circle(np.array([MARGIN + 5, row - 5]), 5, colour, 1.0))
        lines.append(f'<text x="{MARGIN + 16}" y="{row}">{escape(label)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _circle(place: NDArray[np.float64], radius: int, colour: str, opacity: float) -> str:
    return f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius}" fill="{colour}" fill-opacity="{opacity}"/>'
