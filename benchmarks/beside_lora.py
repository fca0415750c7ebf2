"""A table for docs/flagship.md: how many bytes `subbit` needs to the score at which LoRA at one bit ends, both ways."""

from __future__ import annotations

import json
import runpy
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS, LORA = "subbit", "lora-eden"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def read_pairs(arena: Path) -> dict[str, tuple[list[Any], list[Any]]]:
    """Job -> the scored runs of both, where both have some."""
    found = {}
    for folder in sorted(each for each in arena.iterdir() if each.is_dir()):
        files = [folder / f"{name}.json" for name in (OURS, LORA)]
        if all(file.exists() for file in files):
            ours, lora = ([run for run in json.loads(file.read_text())["runs"] if "score" in run] for file in files)
            found[folder.name] = (ours, lora)
    return found


def beside_lora(found: dict[str, Any]) -> str:
    """A generated section."""
    headings = ["job", "LoRA at one bit", "MB", "of these once", "`subbit` is there after MB", "part of LoRA's"]
    return str(SECTIONS["table"](headings, [[f"*{job}*", *_row(*pair)] for job, pair in found["lora"].items()]))


def _row(ours: Sequence[Any], lora: Sequence[Any]) -> list[str]:
    score, whole, once = (_mean(lora, key) for key in ("score", "total_bytes", "one_off_bytes"))
    about = [f"{score:.3f}" if score < 2 else f"{score:.1f}", *(f"{each / 1e6:.3g}" for each in (whole, once))]
    reached = first_reached(ours, score)
    return [*about, *(["never", "-"] if reached is None else [f"{reached / 1e6:.3g}", f"1/{whole / reached:.1f}"])]


def first_reached(runs: Sequence[Any], score: float) -> float | None:
    """Bytes up to the first evaluated round in which the mean over seeds is at least as good; none if there is none.
    A client is sent the head when it first takes part. The start counts, too: it takes the head alone."""
    sign = 1 if runs[0]["higher_is_better"] else -1
    if sign * (_mean(runs, "score_before") - score) >= 0:
        return _mean(runs, "one_off_bytes")
    for place, evaluated in enumerate(runs[0]["score_by_round"]):
        if evaluated is None:
            continue
        if sign * (statistics.fmean(run["score_by_round"][place] for run in runs) - score) >= 0:
            return statistics.fmean(run["bytes_by_round"][place] for run in runs)
    return None


def _mean(runs: Sequence[Any], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)
