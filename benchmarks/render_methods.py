"""Write the generated parts of docs/methods/: what a method sends, its presets and keys, its rows in the arena.

    python benchmarks/render_methods.py

Idea, equations and advice are written by hand, in the same pages. `tests/docs/test_method_pages.py` fails when a method
has no page or a page is out of date.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_jobs
from subbit.arena.standings import HEADINGS, cells, standing
from subbit.core.own_components import own_components
from subbit.report.explain import explain

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "methods"
DECISIONS = ROOT / "docs" / "methods.md"
JOBS, RESULTS = ROOT / "experiments" / "arena", ROOT / "benchmarks" / "results" / "arena"
SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
OVERVIEW = "overview"
MANY = 8
"""More values than this are not listed: `subbit list` has them."""


def methods() -> list[str]:
    """Our own, without plugins that happen to be installed."""
    return [str(row["name"]) for row in own_components("methods") or ()]


def table(headings: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ["---"] * len(headings), *rows])


def about(page: dict[str, Any]) -> str:
    paper = str(page["paper"])
    known = f" Paper {paper.partition(' ')[0]} of [papers.md](../papers.md)." if paper[:1].isdigit() else ""
    cited = "" if paper == "ours" else f" {page['citation']}."
    return f"{page['what']}.{cited}{known}"


def use(page: dict[str, Any]) -> str:
    lines = [table(["direction", "what is sent"], [["up", page["up"]], ["down", page["down"]]]), ""]
    if page["personal"]:
        lines += ["Every client ends with a network of its own.", ""]
    if page["fixed"]:
        lines += [f"The name stands for {settings(page['fixed'])}.", ""]
    for preset, words in page["presets"].items():
        lines += [f"`preset={preset}` {'sets ' + settings(words) if words else 'changes nothing'}.", ""]
    lines += [f"```bash\n{page['example']}\n```", ""]
    name = page["name"]
    heading = re.search(rf"^## (.*`{re.escape(name)}`.*)$", DECISIONS.read_text(), re.MULTILINE)
    anchor = "" if heading is None else "#" + slug(heading[1])
    return "\n".join([*lines, f"What was decided about it, and why: [methods.md](../methods.md{anchor})."])


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and mkdocs make it."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def settings(words: dict[str, Any]) -> str:
    return " ".join(f"`{key}={word(value)}`" for key, value in words.items())


def word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def keys(page: dict[str, Any]) -> str:
    return key_table(page["keys"])


def key_table(rows: list[dict[str, Any]]) -> str:
    return table(
        ["key", "default", "what"], [[f"`{row['key']}`", f"`{word(row['default'])}`", meaning(row)] for row in rows]
    )


def meaning(row: dict[str, Any]) -> str:
    values = row.get("values", [])
    said = [row["what"].replace("|", "\\|")] if row["what"] else []
    if values and values != ["true", "false"]:
        kind = {"privacy": "privacy"}.get(row.get("kind", ""), f"{row.get('kind', '')}s")
        listed = ", ".join(f"`{value}`" for value in values)
        said.append(f"One of {listed}." if len(values) <= MANY else f"One of `subbit list {kind}`.")
    elif row.get("words", [row["default"]]) != [row["default"]]:
        said.append("Also " + ", ".join(f"`{value}`" for value in row["words"]) + ".")
    if "from" in row:
        said.append(f"With `{row['from']}`.")
    return " ".join(said)


def arena(page: dict[str, Any]) -> str:
    rows = page["arena"]
    if not rows:
        return "No results yet: [arena.md](../arena.md)."
    return table(["job", *HEADINGS], rows)


def arena_rows(jobs: Path, results: Path) -> dict[str, list[list[str]]]:
    """By method: entries such as `lora` or `deltamask-paper` are rows of the method that they run."""
    found: dict[str, list[list[str]]] = {}
    for job in read_jobs(jobs).values():
        for row in standing(results, job).rows:
            if row.score is not None and row.role == "method":
                found.setdefault(row.run.partition(":")[0], []).append([job.name, f"`{row.method}`", *cells(row)[1:]])
    return found


def overview(pages: dict[str, Any]) -> str:
    rows = []
    for name, page in pages.items():
        title, colon, rest = str(page["what"]).partition(": ")
        paper = "ours" if page["paper"] == "ours" else str(page["paper"]).partition(" ")[0].replace("baseline", "")
        rows.append([f"[{name}]({name}.md)", rest if colon else title, page["up"], page["down"], paper])
    return table(["method", "idea", "up", "down", "paper"], rows)


def rendered(jobs: Path = JOBS, results: Path = RESULTS) -> dict[Path, str]:
    """Every page as it should be."""
    known, pages = arena_rows(jobs, results), {}
    for name in methods():
        pages[name] = {**explain("methods", name), "arena": known.get(name, [])}
    files = {PAGES / f"{OVERVIEW}.md": SECTIONS["filled"](text_of(OVERVIEW), pages, {"methods": overview})}
    sections = {"about": about, "use": use, "keys": keys, "arena": arena}
    return files | {
        PAGES / f"{name}.md": SECTIONS["filled"](text_of(name), page, sections) for name, page in pages.items()
    }


def text_of(name: str) -> str:
    path = PAGES / f"{name}.md"
    if not path.is_file():
        raise SystemExit(f"{path.relative_to(ROOT)} is missing: write it by the example of docs/methods/fedavg.md")
    return path.read_text()


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text)
