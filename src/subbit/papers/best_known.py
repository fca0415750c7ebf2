"""The best that is known of a protocol: the paper's own scale where it was run, else the smaller one."""

from __future__ import annotations

from pathlib import Path

from subbit.papers.paper_runs import read_runs
from subbit.papers.paper_tables import Cell, Judged, judged
from subbit.papers.protocols import Protocol


def best_known(protocol: Protocol, results: Path, root: Path) -> Judged:
    """Smoke runs only show that something runs, and are never a result."""
    scale = "paper" if read_runs(results, protocol, "paper") else "cpu"
    return judged(protocol, scale, results, root)


def ours_text(cell: Cell) -> str:
    """With as many decimals as the printed value has, and one more."""
    if cell.ours is None:
        return ""
    number = cell.printed.split(" ±")[0].rstrip("KMGB%").rpartition(" ")[2]
    decimals = len(number.partition(".")[2].partition("e")[0])
    text = f"{cell.ours:.{decimals + 1}f}" if "e" not in number else f"{cell.ours:.2e}"
    return f"{text} ±{cell.spread:.{decimals + 1}f}" if cell.spread else text
