"""Write the tables of results into README.md from `demo-comparison.json` and `frontier-fashion.json`, both in
`benchmarks/results/`.

    subbit compare deltamask deltamask:preset=paper fedpm fedavg --config experiments/demo.toml --seeds 3 --json \
        > benchmarks/results/demo-comparison.json
    python benchmarks/render_readme.py

docs/frontier.md has the command of the other file. `tests/test_readme.py` fails when the README shows anything else
than what this makes of the committed files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from subbit.report.compare import accuracy_cell

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MARKERS = re.compile(r"(<!-- (results|frontier)[^>]*-->\n).*?(<!-- /\2 -->)", re.DOTALL)


def render(comparison: dict[str, Any]) -> str:
    runs = next(iter(comparison["runs"].values()))
    first, before = runs[0], next(iter(comparison["methods"].values()))["accuracy_before"]
    lines = [
        f"Measured on `{first['dataset']}` with `{first['model']}`, {first['clients']} clients, {first['rounds']} "
        f"rounds, {comparison['seeds']} seeds; the fitted head alone has accuracy {before:.3f}. Bits are per trained "
        "parameter, client and round; MB are over all clients and rounds.",
        "",
        "| method | accuracy | up, bits | down, bits | up, MB | down, MB | false flips per upload |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, row in comparison["methods"].items():
        false = row["false_flips_per_upload"]
        lines.append(
            f"| `{label}` | {accuracy_cell(row, comparison['seeds'], digits=3)} | {row['uplink_bpp']:.3f} "
            f"| {row['downlink_bpp']:.2f} | {row['uplink_mb']:.2f} | {row['downlink_mb']:.2f} "
            f"| {'0' if false is None else f'{false:.0f}'} |"
        )
    return "\n".join(lines) + "\n"


def render_frontier(comparison: dict[str, Any]) -> str:
    """Who got to the target, the dearest first."""
    first = next(iter(comparison["runs"].values()))[0]
    arrived = {label: row for label, row in comparison["methods"].items() if row["mb_to_target"] is not None}
    lines = [
        f"| `{first['model']}`, `{first['dataset']}`, {first['clients']} clients, {comparison['seeds']} seed(s) "
        f"| MB, both ways, until accuracy {comparison['target']:g} |",
        "|---|---|",
    ]
    for label, row in sorted(arrived.items(), key=lambda item: -item[1]["mb_to_target"]):
        lines.append(f"| `{label}` | {row['mb_to_target']:,.2f} |")
    return "\n".join(lines) + "\n"


def rendered_readme(text: str) -> str:
    tables = {
        "results": render(json.loads((RESULTS / "demo-comparison.json").read_text())),
        "frontier": render_frontier(json.loads((RESULTS / "frontier-fashion.json").read_text())),
    }
    return MARKERS.sub(lambda match: match.group(1) + tables[match.group(2)] + match.group(3), text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(rendered_readme(readme.read_text()))
