"""A table for docs/flagship.md: how many bytes `subbit` needs to the score at which LoRA at one bit ends, both ways."""

from __future__ import annotations

import json
import runpy
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS, LORA = ("subbit", "subbit-lean"), "lora-eden"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def read_pairs(arena: Path) -> dict[tuple[str, str], tuple[list[Any], list[Any]]]:
    """(job, entry of ours) -> its scored runs and those of LoRA, where both have some."""
    found = {}
    for job in sorted(each for each in arena.iterdir() if each.is_dir()):
        for entry in OURS:
            files = [job / f"{name}.json" for name in (entry, LORA)]
            if all(file.exists() for file in files):
                ours, lora = ([run for run in json.loads(file.read_text())["runs"] if "score" in run] for file in files)
                found[job.name, entry] = (ours, lora)
    return found


def beside_lora(found: dict[str, Any]) -> str:
    """A generated section."""
    headings = ["job", "start", "LoRA at one bit", "MB", "MB for the head", "ours", "MB until it is as good", "share"]
    rows = [[f"*{job}*", *_row(entry, *pair)] for (job, entry), pair in found["lora"].items()]
    return str(SECTIONS["table"](headings, rows))


def _row(entry: str, ours: Sequence[Any], lora: Sequence[Any]) -> list[str]:
    start, score, whole, once = (_mean(lora, key) for key in ("score_before", "score", "total_bytes", "one_off_bytes"))
    scores = [f"{each:.3f}" if each < 2 else f"{each:.1f}" for each in (start, score)]
    about = [*scores, *(f"{each / 1e6:.3g}" for each in (whole, once)), f"`{entry}`"]
    if _is_as_good(start, score, lora):  # LoRA had that score without a round.
        return [*about, "-", "-"]
    reached = first_reached(ours, score)
    return [*about, *(["never", "-"] if reached is None else [f"{reached / 1e6:.3g}", f"1/{whole / reached:.1f}"])]


def _is_as_good(one: float, other: float, runs: Sequence[Any]) -> bool:
    return one >= other if runs[0]["higher_is_better"] else one <= other


def first_reached(runs: Sequence[Any], score: float) -> float | None:
    """Bytes up to the first evaluated round in which the mean over seeds is at least as good; none if there is none.
    A client is sent the head when it first takes part. The start counts, too: it takes the head alone."""
    if _is_as_good(_mean(runs, "score_before"), score, runs):
        return _mean(runs, "one_off_bytes")
    for place, evaluated in enumerate(runs[0]["score_by_round"]):
        if evaluated is not None:
            mean = statistics.fmean(run["score_by_round"][place] for run in runs)
            if _is_as_good(mean, score, runs):
                return statistics.fmean(run["bytes_by_round"][place] for run in runs)
    return None


def _mean(runs: Sequence[Any], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)
