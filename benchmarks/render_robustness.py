"""Write the table of SECURITY.md from the committed results of benchmarks/robustness.py.

python benchmarks/render_robustness.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "SECURITY.md"
RESULTS = ROOT / "benchmarks" / "results" / "robustness.json"
MARKERS = re.compile(r"(?P<open><!-- robustness -->\n).*?(?P<close><!-- /robustness -->)", re.DOTALL)
LIES = ["honest", "times -1", "times -10", "times 1e6", "bits inverted"]
REFUSED = "*"


def table(results: dict[str, Any]) -> list[str]:
    job, turns = results["job"], results["liars"] * results["job"]["rounds"]
    headings = ["method", "robust by", "start", *LIES]
    rows = [
        [f"`{name}`", keys(found.get("robust")), f"{found['start']:.2f}", *(cell(found, lie, turns) for lie in LIES)]
        for name, found in results["methods"].items()
    ]
    own = "; ".join(
        f"`{name}` {keys(found['default'])}" for name, found in results["methods"].items() if found["default"]["keys"]
    )
    skipped = "; ".join(f"`{name}` {why}" for name, why in results["skipped"].items())
    return [
        f"{results['liars']} of {job['clients']} clients lie in all of {job['rounds']} rounds ({job['dataset']}, a "
        f"network of {job['hidden']} hidden units, seed {job['seed']}). Accuracy as the method comes / with robust "
        f"aggregation; {REFUSED} where the server refused every such upload. Not here: {skipped}.",
        "",
        f"Keys are the defaults, but for {own}.",
        "",
        *("| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *rows]),
    ]


def keys(variant: dict[str, Any] | None) -> str:
    return "" if variant is None else " ".join(f"`{key}={value}`" for key, value in variant["keys"].items())


def cell(found: dict[str, Any], lie: str, turns: int) -> str:
    told = [found[variant]["lies"].get(lie) for variant in ("default", "robust") if variant in found]
    return " / ".join(
        f"{outcome['accuracy']:.2f}{REFUSED if outcome['refused'] == turns else ''}" for outcome in told if outcome
    )


def rendered_page(text: str) -> str:
    lines = table(json.loads(RESULTS.read_text()))
    return MARKERS.sub(lambda match: match["open"] + "\n".join(lines) + "\n" + match["close"], text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
