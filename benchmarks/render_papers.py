"""Write the tables of docs/papers.md from `experiments/papers/` and the committed results. A test fails if the page is
out of date.

    python benchmarks/render_papers.py
"""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

from subbit.papers.best_known import best_known, ours_text
from subbit.papers.costs import estimate, read_rates
from subbit.papers.paper_tables import Cell, Judged
from subbit.papers.protocols import read_protocols
from subbit.papers.verdicts import VERDICTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "papers.md"
PROTOCOLS, RESULTS = ROOT / "experiments" / "papers", ROOT / "benchmarks" / "results" / "papers"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
TITLES = {
    "000": "DeltaMask: Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking",
    "001": "Sparse Updates as a Regularizer in Federated Learning",
    "002": "Zampling: Trading-off Accuracy and Communication Cost in Federated Learning",
    "003": "FedPEFT: Conquering the Communication Constraints to Enable Large Pre-Trained Models",
    "004": "FedMask: Joint Computation and Communication-Efficient Personalized Federated Learning",
}
NO_ANSWER = ("not run", "cannot be run here")


def summary(results: dict[str, Any]) -> str:
    """How many values of each paper have which verdict."""
    rows = []
    for paper, title in TITLES.items():
        cells = [
            cell for each in results["found"] if each.protocol.paper == paper for cell in each.cells if cell.counts
        ]
        counts = Counter(cell.verdict for cell in cells)
        rows.append([f"{paper}, {title.partition(':')[0]}", *(str(counts[each]) for each in VERDICTS), str(len(cells))])
    rows.append(["all", *(str(sum(int(row[place]) for row in rows)) for place in range(1, len(VERDICTS) + 2))])
    beside = sum(cell.ours is not None for each in results["found"] for cell in each.cells)
    table = SECTIONS["table"](["paper", *VERDICTS, "all"], rows)
    return f"{table}\n\n{beside} printed values have one of ours beside them."


def papers(results: dict[str, Any]) -> str:
    parts = []
    for paper, title in TITLES.items():
        parts.append(f"## {paper}: {title}")
        parts += [_protocol(each, results["rates"]) for each in results["found"] if each.protocol.paper == paper]
    return "\n\n".join(parts)


def _protocol(found: Judged, rates: dict[str, Any]) -> str:
    protocol = found.protocol
    header, name = protocol.header, protocol.name.replace("-", " ", 1)
    title = f"### {protocol.paper}, {name}\n\n{header.what[0].upper()}{header.what[1:]}."
    if header.drawing:
        return f"{title} **Nothing to measure.**"
    lines = [f"{title} **{found.verdict.capitalize()}**: {found.counts}."]
    if header.note:
        lines.append(header.note)
    if found.shrunk:
        lines.append(f"Smaller than in the paper: {'; '.join(found.shrunk)}.")
    cost = f"the runs of {header.runs_of}" if header.runs_of else str(estimate(protocol, "paper", rates))
    lines.append(f"`subbit paper {protocol.paper} {protocol.name}`; with `--scale paper`: {cost}.")
    shown = [cell for cell in found.cells if cell.verdict not in NO_ANSWER]
    if shown:
        headings = ["what", "printed", "ours", "verdict", ""]
        lines.append(SECTIONS["table"](headings, [_row(cell) for cell in shown]))
    lines += [
        _left(found.cells, verdict) for verdict in NO_ANSWER if any(cell.verdict == verdict for cell in found.cells)
    ]
    return "\n\n".join(lines)


def _row(cell: Cell) -> list[str]:
    metric = "" if cell.metric in ("", "computed") else f" ({cell.metric})"
    seeds = f", {cell.seeds} seeds" if cell.seeds > 1 and cell.ours is not None else ""
    return [f"{cell.says}{metric}".replace("|", "/"), cell.printed, ours_text(cell), cell.verdict + seeds, cell.why]


def _left(cells: tuple[Cell, ...], verdict: str) -> str:
    """What has no answer, in one line: how many values, and the reasons."""
    left = [cell for cell in cells if cell.verdict == verdict]
    reasons = sorted({cell.why for cell in left if cell.why})
    return f"{verdict.capitalize()}: {len(left)}{'. ' + '; '.join(reasons) if reasons else ''}."


def rendered_page(text: str, protocols: Path = PROTOCOLS, results: Path = RESULTS) -> str:
    found = [best_known(protocol, results, ROOT) for protocol in read_protocols(protocols).values()]
    values = {"found": found, "rates": read_rates(RESULTS / "rates.json")}
    return str(SECTIONS["filled"](text, values, {"summary": summary, "papers": papers}))


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))
