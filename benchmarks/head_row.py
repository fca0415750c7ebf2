"""The row of the head alone for a table of accuracies, and the sentence above it, from `head-alone.json`.

Used by the scripts here that write tables; `benchmarks/head_alone.py` creates the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LABEL = "`head=lda` alone, no training"
LEVEL = 0.01
"""Accuracies that differ by less than this are called equal."""


def known() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((Path(__file__).parent / "results" / "head-alone.json").read_text())
    return results


def sentence(
    heads: Sequence[float],
    rows: Sequence[Sequence[float]],
    where: str = "on this job",
    kind: str = "trained results",
) -> str:
    """One head accuracy and one list of rows for each job of the table."""
    pairs = [(head, row) for head, column in zip(heads, rows, strict=True) for row in column]
    reached = sum(head > row - LEVEL for head, row in pairs)
    listed = ", ".join(f"{head:.3f}" for head in heads)
    return (
        f"**Read this first.** A head fitted in closed form, without any training, has accuracy {listed} {where}: "
        f"above or level with {reached} of the {len(pairs)} {kind} below. So this table does not rank the "
        "methods, and it will be measured anew from such a head."
    )
