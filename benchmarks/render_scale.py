"""Update the numbers of docs/scale.md from benchmarks/results/scale-models.json. No number is typed by hand.

python -m benchmarks.bench.models benchmarks/results/scale-models.json
python benchmarks/render_scale.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from page_sections import SECTION as SECTION
from page_sections import Results, filled, table

ROOT = Path(__file__).parent.parent
PAGE, FILE = ROOT / "docs/scale.md", ROOT / "benchmarks/results/scale-models.json"
NAMES = {"all masks": "masks, all weights", "default masks": "masks, last 5 blocks", "lora": "LoRA, one bit"}


def main() -> None:
    PAGE.write_text(with_sections(PAGE.read_text(), committed()))


def committed() -> Results:
    results: dict[str, Any] = json.loads(FILE.read_text())
    return results


def with_sections(page: str, results: Results) -> str:
    return filled(page, results, SECTIONS)


def models(results: Results) -> str:
    headings = ("network", "trained", "values", "bytes up", "down", "counted, float32", "bfloat16", "measured")
    return table(headings, map(_line, results["rows"]))


def _line(row: Results) -> tuple[str, ...]:
    counted, measured, masks = row["counted"], row.get("measured"), row["way"] != "lora"
    up = counted["up_bytes"]
    if masks and measured:  # What the codec really spent.
        up = round(measured["uplink_bpp"] * measured["trained"] / 8)
    memory = (_gigabytes(counted["memory"][name]) for name in ("float32", "bfloat16"))
    most = "at most " if masks and not measured else ""
    return (
        f"{row['network']} ({_short(counted['total'])})",
        NAMES[row["way"]],
        f"{counted['trained']:,}",
        "too many for a frame" if up is None else f"{most}{_bytes(up)}",
        "" if masks else _bytes(counted["down_bytes"]),
        *memory,
        f"{measured['peak_gb']:.2f} GB" if measured else "",
    )


def target(results: Results) -> str:
    [row] = [row for row in results["rows"] if (row["network"], row["way"]) == ("ViT-B/32", "default masks")]
    peak, most = row["measured"]["peak_gb"], results["target_gb"]
    return (
        f"ViT-B/32 with the default masks, {row['measured']['trained']:,} weights, takes {peak:.2f} GB at batch "
        f"{results['batch']}, {row['measured']['libraries_gb']:.2f} GB of them Python and its libraries; at most "
        f"{most} GB is the target, {'met' if peak <= most else '**missed**'}."
    )


def _short(count: int) -> str:
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.3g} million"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


SECTIONS: dict[str, Callable[[Results], str]] = {"models": models, "target": target}


if __name__ == "__main__":
    sys.exit(main())
