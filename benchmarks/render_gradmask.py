"""Write the table of docs/gradient-masks.md from `benchmarks/results/gradmask.json`, made by `benchmarks/gradmask.py`.

A test fails if the page is out of date.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

from subbit.report.compare import score_cell

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "gradmask.json", ROOT / "docs" / "gradient-masks.md"
HEAD = runpy.run_path(str(Path(__file__).with_name("head_row.py")))
HEADS = {"IID": "gradmask-iid", "two classes": "gradmask-2class", "starved": "gradmask-starved"}
MARKERS = re.compile(r"(<!-- generated: gradmask -->\n).*?(<!-- /generated -->)", re.DOTALL)


def render(results: dict[str, Any]) -> str:
    splits = results["splits"]
    first = next(iter(splits.values()))
    job = next(iter(first["runs"].values()))[0]
    sizes = "; ".join(
        f"{split}: {run['clients']} clients, {run['participants']} in each of {run['rounds']} rounds"
        for split, run in ((split, next(iter(found["runs"].values()))[0]) for split, found in splits.items())
    )
    heads = {split: HEAD["known"]()[HEADS[split]] for split in splits}
    accuracies = [[row["accuracy"] for row in found["methods"].values()] for found in splits.values()]
    spread = ", mean and standard deviation" if first["seeds"] > 1 else ""
    lines = [
        f"`{job['model']}` on `{job['dataset']}`, accuracy of the last round, {first['seeds']} seed(s){spread}. "
        f"{sizes}. Bits are per trained parameter, client and round, on the first split.",
        "",
        HEAD["sentence"]([heads[split]["accuracy"] for split in splits], accuracies, "on these splits"),
        "",
        "| | " + " | ".join(splits) + " | up, bits | down, bits | run as |",
        "|---" * (len(splits) + 4) + "|",
    ]
    once = ", ".join(f"{head['once_mb']:.2f}" for head in heads.values())
    cells = [score_cell(heads[split], found["seeds"], digits=3) for split, found in splits.items()]
    cells = [HEAD["LABEL"], *cells, "-", "-", f"`head=lda`, {once} MB once"]
    lines.append("| " + " | ".join(cells) + " |")
    for what, label in results["rows"].items():
        cells = [what]
        for found in splits.values():
            cells.append(score_cell(found["methods"][label], found["seeds"], digits=3))
        bits = first["methods"][label]
        cells += [f"{bits['uplink_bpp']:.2f}", f"{bits['downlink_bpp']:.2f}", f"`{label}`"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rendered_page(text: str) -> str:
    table = render(json.loads(RESULTS.read_text())) if RESULTS.exists() else "Not measured yet.\n"
    return MARKERS.sub(lambda match: match.group(1) + table + match.group(2), text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
