"""SVG files that depend on nothing but what is drawn, so that they change only when the results do."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from matplotlib.figure import Figure

SETTINGS = {"svg.hashsalt": "subbit", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
HASHED = re.compile(r"\b[pm][0-9a-f]{10}\b")


def save_svg(figure: Figure, path: Path) -> None:
    """matplotlib names clip paths and markers by a hash of unrounded positions, whose last bits depend on the
    processor. Here they are numbered."""
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None}, facecolor="white")
    names: dict[str, str] = {}
    text = HASHED.sub(lambda found: names.setdefault(found[0], f"{found[0][0]}{len(names)}"), drawn.getvalue())
    path.write_text(text, encoding="utf-8")
