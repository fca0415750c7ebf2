"""Write the table of results into README.md from `demo-comparison.json` and `head-alone.json` in `benchmarks/results/`.

    subbit compare deltamask deltamask:preset=paper fedpm fedavg --config experiments/demo.toml --seeds 3 --json \
        > benchmarks/results/demo-comparison.json
    python benchmarks/render_readme.py

`benchmarks/head_alone.py` makes the other file. `tests/test_readme.py` fails when the README shows anything else than
what this makes of the committed files.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

from subbit.report.compare import score_cell

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
HEAD = runpy.run_path(str(Path(__file__).with_name("head_row.py")))
MARKERS = re.compile(r"(<!-- results[^>]*-->\n).*?(<!-- /results -->)", re.DOTALL)


def render(comparison: dict[str, Any], head: dict[str, Any]) -> str:
    runs = next(iter(comparison["runs"].values()))
    first, before = runs[0], next(iter(comparison["methods"].values()))["accuracy_before"]
    lines = [
        f"Measured on `{first['dataset']}` with `{first['model']}`, {first['clients']} clients, {first['rounds']} "
        f"rounds, {comparison['seeds']} seeds; the probed head they start from has accuracy {before:.3f}. Bits are "
        "per trained parameter, client and round; MB are over all clients and rounds.",
        "",
        HEAD["sentence"]([head["accuracy"]], [[row["accuracy"] for row in comparison["methods"].values()]]),
        "",
        "| method | accuracy | up, bits | down, bits | up, MB | down, MB | false flips per upload |",
        "|---|---|---|---|---|---|---|",
        f"| {HEAD['LABEL']}; {head['once_mb']:.2f} MB once | {score_cell(head, comparison['seeds'], digits=3)} "
        "| - | - | 0.00 | 0.00 | 0 |",
    ]
    for label, row in comparison["methods"].items():
        false = row["false_flips_per_upload"]
        lines.append(
            f"| `{label}` | {score_cell(row, comparison['seeds'], digits=3)} | {row['uplink_bpp']:.3f} "
            f"| {row['downlink_bpp']:.2f} | {row['uplink_mb']:.2f} | {row['downlink_mb']:.2f} "
            f"| {'0' if false is None else f'{false:.0f}'} |"
        )
    return "\n".join(lines) + "\n"


def rendered_readme(text: str) -> str:
    table = render(json.loads((RESULTS / "demo-comparison.json").read_text()), HEAD["known"]()["demo-comparison"])
    return MARKERS.sub(lambda match: match.group(1) + table + match.group(2), text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(rendered_readme(readme.read_text()))
