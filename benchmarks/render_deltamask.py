"""Write the tables of docs/deltamask.md from `benchmarks/results/deltamask-readings.json`, made by
`benchmarks/deltamask_readings.py`. A test fails if the page is out of date.
"""

from __future__ import annotations

import json
import runpy
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "deltamask-readings.json", ROOT / "docs" / "deltamask.md"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
SHOWN = (1, 5, 10, 20, 50, 100)


def rounds(bpp: list[float]) -> list[str]:
    return [f"{bpp[number - 1]:.3f}" for number in SHOWN] + [f"{statistics.fmean(bpp):.3f}"]


def headings(*first: str) -> list[str]:
    return [*first, *(f"round {number}" for number in SHOWN), "mean"]


def named(clamp: Any) -> str:
    return "mean of Beta" if clamp == "mean" else f"{clamp:g}"


def still(results: Any) -> str:
    rows = [
        [str(row["clients"]), named(row["clamp"]), words, *rounds(row[kind])]
        for row in results["still"]
        for kind, words in (("exact", "none"), ("filter", "1 in 256"))
    ]
    text: str = SECTIONS["table"](headings("clients", "clamp", "false positives"), rows)
    return text


def learning(results: Any) -> str:
    rows = [
        [
            row["reading"],
            named(row["clamp"]),
            str(row["bits"]),
            *rounds(row["bpp_by_round"]),
            f"{row['loss_by_round'][17]:.3f}",
            f"{row['loss_by_round'][-1]:.3f}",
            f"{row['accuracy']:.3f}",
        ]
        for row in results["learning"]
    ]
    first = results["learning"][0]
    text: str = SECTIONS["table"](
        [*headings("draws", "clamp", "bits of a fingerprint"), "loss, round 18", "loss, round 100", "accuracy"], rows
    )
    job = f"{first['places']:,} places, {first['clients']} clients; accuracy before: {first['accuracy_before']:.3f}."
    return f"{job}\n\n{text}"


def rendered_page(page: str) -> str:
    text: str = SECTIONS["filled"](page, json.loads(RESULTS.read_text()), {"still": still, "learning": learning})
    return text


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
