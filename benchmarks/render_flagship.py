"""Write the bytes of `benchmarks/results/vitb-bytes.json`, the flagship's rows of the arena, the published figures of
`peers.json`, the liars of `liars.json`, the runs of `ablations.json` and `budgets.json` and the single runs of
`flagship-tried.json` into docs/flagship.md, and draw docs/peers.svg.

python benchmarks/render_flagship.py
"""

from __future__ import annotations

import json
import math
import runpy
import statistics
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_jobs
from subbit.arena.standings import Row, Standing, standing

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "flagship.md"
RESULTS = ROOT / "benchmarks" / "results" / "vitb-bytes.json"
LIARS = ROOT / "benchmarks" / "results" / "liars.json"
TRIED = ROOT / "benchmarks" / "results" / "flagship-tried.json"
PUBLISHED, PICTURE = ROOT / "benchmarks" / "results" / "peers.json", ROOT / "docs" / "peers.svg"
JOBS, ARENA = ROOT / "experiments" / "arena", ROOT / "benchmarks" / "results" / "arena"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
PEERS = runpy.run_path(str(Path(__file__).with_name("peers.py")))
LORA = runpy.run_path(str(Path(__file__).with_name("beside_lora.py")))
ABLATIONS = runpy.run_path(str(Path(__file__).with_name("ablation_tables.py")))
OURS, FULL = "subbit", "fedavg"
OWN = "-own"
"""How names of rows end in which clients go on alone after the run, where each has a network of its own."""


def vitb(found: dict[str, Any]) -> str:
    return (
        f"At the size of ViT-B ({found['weights']:,} weights, random, 100 classes) the default sends "
        f"{found['uplink_bytes']:,.0f} bytes up and {found['downlink_bytes']:,.0f} down per client and round: "
        "`python benchmarks/vitb_bytes.py`."
    )


def arena(found: dict[str, Any]) -> str:
    headings = ["job", "floor", "`subbit`", "MB", "`fedavg`", "MB", "gap that `fedavg` closes", "of it `subbit`"]
    headings += ["fewest MB of another that scores as high"]
    rows = [row for row in map(_row, found["jobs"]) if row is not None]
    return str(SECTIONS["table"](headings, rows)) if rows else "Nothing yet."


def liars(found: dict[str, Any]) -> str:
    """Beside honest runs: the cost of a lie is the difference of means over the same seeds."""
    runs = found["liars"]["runs"]
    record = json.loads((ARENA / found["liars"]["job"] / f"{OURS}.json").read_text())
    honest = {run["seed"]: run["score"] for run in record["runs"]}
    rows = [["nobody, default keys", *_told([*honest.values()]), "-"]]
    for who, lie in sorted({(run["who"], run["lie"]) for run in runs}):
        scores = {run["seed"]: run["score"] for run in runs if (run["who"], run["lie"]) == (who, lie)}
        lost = [honest[seed] - score for seed, score in scores.items()]
        about = f"{who}, change {lie}; `{' '.join(runs[0]['keys'])}`"
        points = f"{100 * statistics.fmean(lost):.1f} (at most {100 * max(lost):.1f})"
        rows.append([about, *_told([*scores.values()]), points])
    headings = ["who lies", f"accuracy on *{found['liars']['job']}*", "seeds", "points lost"]
    return str(SECTIONS["table"](headings, rows))


def _told(scores: list[float]) -> list[str]:
    spread = f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
    return [f"{statistics.fmean(scores):.3f}{spread}", str(len(scores))]


def tried(found: dict[str, Any]) -> str:
    headings = ["job", "run", "calibration", "before", "at each evaluation", "MB"]
    rows = []
    for run in found["tried"]["runs"]:
        scores = ", ".join(f"{score:.3f}" for score in run["by_evaluation"])
        about = [run["job"], f"`{run['run']}`", run["calibration"], f"{run['before']:.3f}"]
        rows.append([*about, scores, f"{run['mb']:,.3g}"])
    return f"{found['tried']['what']}\n\n{SECTIONS['table'](headings, rows)}"


def _row(found: Standing) -> list[str] | None:
    rows = {row.method: row for row in found.rows if row.score is not None}
    own = OWN if OURS + OWN in rows else ""
    if OURS + own not in rows or FULL + own not in rows:
        return None
    floor = max((row for row in rows.values() if row.role == "floor"), key=_closed)
    ours, full = rows[OURS + own], rows[FULL + own]
    closed = "-" if full.gap_closed is None else f"{full.gap_closed:.0%}"
    usable = full.gap_closed is not None and ours.gap_closed is not None and full.gap_closed > 0
    share = f"{(ours.gap_closed or 0) / (full.gap_closed or 1):.0%}" if usable else "-"
    shown = [_with_spread(ours), _megabytes(ours), _with_spread(full), _megabytes(full)]
    others = [
        row
        for row in rows.values()
        if row.role == "method" and not row.method.startswith(OURS) and _closed(row) >= _closed(ours)
    ]
    cheapest = min(others, key=lambda row: row.total_mb or math.inf, default=None)
    as_high = "none" if cheapest is None else f"{_megabytes(cheapest)} (`{cheapest.method}`)"
    return [found.job.name + (f" (`{OWN}`)" if own else ""), _with_spread(floor), *shown, closed, share, as_high]


def _closed(row: Row) -> float:
    """The share of the gap, which is larger for better scores, also where these are perplexities."""
    return -math.inf if row.gap_closed is None else row.gap_closed


def _with_spread(row: Row) -> str:
    return f"{row.score:.3f}" + (f" ± {row.spread:.3f}" if row.spread is not None else "")


def _megabytes(row: Row) -> str:
    return f"{row.total_mb:,.3g}" if row.total_mb is not None and row.total_mb < 100 else f"{row.total_mb or 0:,.0f}"


def rendered_page(text: str) -> str:
    found = json.loads(RESULTS.read_text())
    found["jobs"] = [standing(ARENA, job) for job in read_jobs(JOBS).values()]
    found["tried"], found["liars"] = json.loads(TRIED.read_text()), json.loads(LIARS.read_text())
    found |= peers()
    found["lora"] = LORA["read_pairs"](ARENA)
    sections = {
        "vitb": vitb,
        "arena": arena,
        "beside-lora": LORA["beside_lora"],
        "peers": PEERS["peers"],
        "liars": liars,
        "tried": tried,
    }
    for name in ("ablations", "budgets"):
        found[name], sections[name] = ABLATIONS["measured"](ABLATIONS["RUNS"][name.upper()]), ABLATIONS[name]
    return str(SECTIONS["filled"](text, found, sections))


def peers() -> dict[str, Any]:
    return {"peers": json.loads(PUBLISHED.read_text()), "own": PEERS["own_results"](JOBS, ARENA)}


def main() -> None:
    PAGE.write_text(rendered_page(PAGE.read_text()))
    found = peers()
    save_plot = runpy.run_path(str(Path(__file__).with_name("plot_peers.py")))["save_plot"]
    save_plot(found["own"], found["peers"], PICTURE)


if __name__ == "__main__":
    main()
