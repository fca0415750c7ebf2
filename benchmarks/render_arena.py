"""Write the tables of docs/arena.md from `experiments/arena/` and `benchmarks/results/arena/`. A test fails if the page
is out of date.

    python benchmarks/render_arena.py
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_jobs
from subbit.arena.standings import HEADINGS, Standing, cells, standing

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "arena.md"
PICTURE = ROOT / "docs" / "arena.svg"
JOBS, RESULTS = ROOT / "experiments" / "arena", ROOT / "benchmarks" / "results" / "arena"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))


def standings(results: dict[str, Any]) -> str:
    return "\n\n".join(_job(found) for found in results["jobs"])


def _job(found: Standing) -> str:
    job, gap = found.job, found.gap
    title = f"### {job.name}\n\n{job.header.what}."
    if not any(row.score is not None for row in found.rows):
        return f"{title} Not measured yet: `subbit arena {job.name}`."
    if gap is None:
        title += " The floor or the ceiling is not measured yet."
    elif gap.width is None:
        title += " The ceiling is not above the floor by more than the spread, so there is no gap to close."
    name = next(row.score_name for row in found.rows if row.score_name)
    headings = [name if heading == "score" else heading for heading in HEADINGS]
    rows = [[f"`{row.method}`" + _role(row.role), *cells(row)[1:]] for row in found.rows if row.score is not None]
    waiting = [f"`{row.method}`" for row in found.rows if row.score is None]
    more = f"\n\nNot measured yet: {', '.join(waiting)}." if waiting else ""
    return f"{title}\n\n{SECTIONS['table'](headings, rows)}{more}"


def _role(role: str) -> str:
    return "" if role == "method" else f" ({role})"


def tried(results: dict[str, Any]) -> str:
    """What every method was run as, with the setting that was chosen."""
    rows = [
        [row.job, f"`{row.method}`", f"`{row.run}`", str(row.tried)]
        for found in results["jobs"]
        for row in found.rows
        if row.score is not None
    ]
    return SECTIONS["table"](["job", "method", "run as", "settings tried"], rows) if rows else "Nothing yet."


def rendered_page(text: str, jobs: Path = JOBS, results: Path = RESULTS) -> str:
    found: dict[str, Any] = {"jobs": [standing(results, job) for job in read_jobs(jobs).values()]}
    return str(SECTIONS["filled"](text, found, {"standings": standings, "tried": tried}))


def main() -> None:
    PAGE.write_text(rendered_page(PAGE.read_text()))
    found = [standing(RESULTS, job) for job in read_jobs(JOBS).values()]
    runpy.run_path(str(Path(__file__).with_name("plot_arena.py")))["save_plot"](found, PICTURE)


if __name__ == "__main__":
    main()
