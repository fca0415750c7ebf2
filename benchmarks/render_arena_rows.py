"""Write rows of the arena into pages that talk about some of its methods.

    python benchmarks/render_arena_rows.py

Everything between `<!-- arena: METHOD METHOD ... -->` and `<!-- /arena -->` of a page is replaced by the rows of these
methods in the jobs in which the first one was run, with the floors and the ceiling. A test fails if a page is out of
date.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Collection, Sequence
from pathlib import Path

from subbit.arena.jobs import read_jobs
from subbit.arena.standings import HEADINGS, Row, Standing, cells, standing

ROOT = Path(__file__).parent.parent
JOBS, RESULTS = ROOT / "experiments" / "arena", ROOT / "benchmarks" / "results" / "arena"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
MARKERS = re.compile(r"(?P<open><!-- arena: (?P<names>[a-z -]+) -->\n).*?(?P<close><!-- /arena -->)", re.DOTALL)


def method_of(row: Row) -> str:
    """Entries such as `lora` or `deltamask-paper` are rows of the method that they run."""
    return row.run.partition(":")[0]


def rows(standings: Collection[Standing], methods: Sequence[str]) -> list[list[str]]:
    found = []
    for each in standings:
        shown = [row for row in each.rows if row.score is not None]
        ours = [row for row in shown if row.role == "method" and method_of(row) in methods]
        if methods[0] not in map(method_of, ours):
            continue
        for row in [*(row for row in shown if row.role != "method"), *ours]:
            role = "" if row.role == "method" else f" ({row.role})"
            found.append([each.job.name, f"`{row.method}`{role}", *cells(row)[1:]])
    return found


def rendered_page(text: str, standings: Collection[Standing]) -> str:
    def replaced(match: re.Match[str]) -> str:
        found = rows(standings, match["names"].split())
        table = SECTIONS["table"](["job", *HEADINGS], found) if found else "No results yet."
        return f"{match['open']}\n{table}\n\n{match['close']}"

    return MARKERS.sub(replaced, text)


def rendered(jobs: Path = JOBS, results: Path = RESULTS) -> dict[Path, str]:
    """Every page that has such rows, as it should be."""
    standings = [standing(results, job) for job in read_jobs(jobs).values()]
    pages = {page: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
    return {page: rendered_page(text, standings) for page, text in pages.items() if MARKERS.search(text)}


if __name__ == "__main__":
    for path, page in rendered().items():
        path.write_text(page)
