"""Write the bytes of `benchmarks/results/vitb-bytes.json` into docs/flagship.md.

python benchmarks/render_flagship.py
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "flagship.md"
RESULTS = ROOT / "benchmarks" / "results" / "vitb-bytes.json"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def vitb(found: dict[str, Any]) -> str:
    return (
        f"At the size of ViT-B ({found['weights']:,} weights, random, 100 classes) the default sends "
        f"{found['uplink_bytes']:,.0f} bytes up and {found['downlink_bytes']:,.0f} down per client and round: "
        "`python benchmarks/vitb_bytes.py`."
    )


def rendered_page(text: str) -> str:
    return str(SECTIONS["filled"](text, json.loads(RESULTS.read_text()), {"vitb": vitb}))


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
