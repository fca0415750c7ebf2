"""Write tables into the pages of docs/ from committed results of `subbit compare ... --json`.

    subbit compare subbit fedpm --config experiments/fashion-masks.toml --seeds 3 --json > benchmarks/results/NAME.json
    python benchmarks/render_comparisons.py

Everything between `<!-- comparison: NAME -->` and `<!-- /comparison -->` of a page is replaced. If a page shows
`NAME.svg`, the plot of that comparison is written next to it. A test fails if a page or a plot is out of date.
"""

from __future__ import annotations

import json
import re
import runpy
import statistics
from pathlib import Path
from typing import Any

from subbit.report.compare import score_cell
from subbit.report.frontier import frontier_plot

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
HEAD = runpy.run_path(str(Path(__file__).with_name("head_row.py")))
MARKERS = re.compile(
    r"(?P<open><!-- comparison: (?P<name>[a-z0-9-]+) -->\n).*?(?P<close><!-- /comparison -->)", re.DOTALL
)


def render(comparison: dict[str, Any], head: dict[str, Any] | None = None) -> str:
    """`head` is the result of the head alone on the same job, if it was measured."""
    first = next(iter(comparison["runs"].values()))[0]
    target, personal = comparison["target"], "accuracy_by_client" in first
    drawn = any("accuracy_sampled" in run for runs in comparison["runs"].values() for run in runs)
    # The head is fitted without noise, so it cannot be compared with private rows.
    trained = {label: row["accuracy"] for label, row in comparison["methods"].items() if "privacy=" not in label}
    kind = "trained results" if len(trained) == len(comparison["methods"]) else "trained results without noise"
    lines = [
        f"`{first['model']}` on `{first['dataset']}`, {first['clients']} clients, {first['participants']} in a round, "
        f"{first['rounds']} rounds, {comparison['seeds']} seed(s)"
        + (", mean and standard deviation" if comparison["seeds"] > 1 else "")
        + (" of the mean over devices of the accuracy on their own test sets" if personal else "")
        + ". Bits are per trained parameter, client and round; MB are over all clients and rounds.",
        "",
        *([HEAD["sentence"]([head["accuracy"]], [list(trained.values())], kind=kind), ""] if head else []),
        "| method | accuracy |"
        + (" of drawn masks |" if drawn else "")
        + " before | up, bits | down, bits | up, MB | down, MB | once, MB |"
        + (f" MB to {target:.3f} |" if target is not None else ""),
        "|---" * (8 + drawn + (target is not None)) + "|",
    ]
    if head:
        cells = [HEAD["LABEL"], score_cell(head, comparison["seeds"], digits=3), *["-"] * (drawn + 3)]
        cells += ["0.00", "0.00", f"{head['once_mb']:.2f}"]
        if target is not None:
            cells.append(f"{head['once_mb']:.2f}" if head["accuracy"] >= target else "never")
        lines.append("| " + " | ".join(cells) + " |")
    for label, row in comparison["methods"].items():
        cells = [
            f"`{label}`",
            score_cell(row, comparison["seeds"], digits=3),
            *([drawn_accuracy(comparison["runs"][label])] if drawn else []),
            f"{row['accuracy_before']:.3f}",
            f"{row['uplink_bpp']:.4f}",
            f"{row['downlink_bpp']:.3f}",
            f"{row['uplink_mb']:.2f}",
            f"{row['downlink_mb']:.2f}",
            f"{row['one_off_mb']:.2f}",
        ]
        if target is not None:
            cells.append("never" if row["mb_to_target"] is None else f"{row['mb_to_target']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def drawn_accuracy(runs: list[dict[str, Any]]) -> str:
    """Accuracy of a sampled network, which the papers on stochastic masks report instead of the expected one."""
    found = [run["accuracy_sampled"] for run in runs if "accuracy_sampled" in run]
    return f"{statistics.fmean(found):.3f}" if found else "-"


def rendered_page(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        comparison = json.loads((RESULTS / f"{match['name']}.json").read_text())
        return match["open"] + render(comparison, HEAD["known"]().get(match["name"])) + match["close"]

    return MARKERS.sub(replaced, text)


def plots() -> dict[Path, str]:
    """File and contents of the plot of every comparison that a page shows."""
    found = {}
    for page in pages():
        for match in MARKERS.finditer(page.read_text()):
            if f"({match['name']}.svg)" in page.read_text():
                comparison = json.loads((RESULTS / f"{match['name']}.json").read_text())
                if match["name"] in HEAD["known"]():
                    comparison["runs"]["head=lda alone"] = head_runs(match["name"])
                found[page.with_name(f"{match['name']}.svg")] = frontier_plot(comparison)
    return found


def head_runs(name: str) -> list[dict[str, Any]]:
    """The head alone as runs with one evaluated round."""
    runs = HEAD["known"]()[name]["runs"]
    return [{"bytes_by_round": [run["once_bytes"]], "accuracy_by_round": [run["accuracy"]]} for run in runs]


def pages() -> list[Path]:
    return [page for page in sorted((ROOT / "docs").glob("*.md")) if MARKERS.search(page.read_text())]


if __name__ == "__main__":
    for page in pages():
        page.write_text(rendered_page(page.read_text()))
    for path, plot in plots().items():
        path.write_text(plot)
