"""The best that is known of a protocol: the paper's own scale where it was run, else the smaller one."""

from __future__ import annotations

from pathlib import Path

from subbit.papers.paper_tables import Cell, Judged, judged
from subbit.papers.protocols import Protocol
from subbit.papers.verdicts import MEASURED


def best_known(protocol: Protocol, results: Path, root: Path) -> Judged:
    """Value by value. Smoke runs only show that something runs, and are never a result."""
    whole, small = (judged(protocol, scale, results, root) for scale in ("paper", "cpu"))
    cells = tuple(
        first if first.verdict in MEASURED else second for first, second in zip(whole.cells, small.cells, strict=True)
    )
    used = {cell.scale for cell in cells if cell.scale and cell.kind != "computed"}
    shrunk = small.shrunk if "cpu" in used else ()
    return Judged(protocol, " and ".join(sorted(used, reverse=True)) or "paper", cells, shrunk)


def ours_text(cell: Cell) -> str:
    """With as many decimals as the printed value has, and one more."""
    if cell.ours is None:
        return ""
    number = cell.printed.split(" ±")[0].rstrip("KMGB%").rpartition(" ")[2]
    decimals = len(number.partition(".")[2].partition("e")[0])
    text = f"{cell.ours:.{decimals + 1}f}" if "e" not in number else f"{cell.ours:.2e}"
    return f"{text} ±{cell.spread:.{decimals + 1}f}" if cell.spread else text
