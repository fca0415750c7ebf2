"""Pictures, keys, commands and rows of the arena are what the committed results and the code say."""

from __future__ import annotations

import re
import runpy
import struct
from pathlib import Path
from typing import Any

import pytest

from subbit.arena.jobs import read_jobs
from subbit.arena.kept_results import Record, write_record
from subbit.wire.frame import HEADER_BYTES, MAGIC
from tests.arena.test_standings import run

ROOT = Path(__file__).parents[2]


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / f"render_{name}.py"))


@pytest.mark.parametrize("name", ["how_it_works", "reference", "methods", "arena_rows"])
def test_pages_are_up_to_date(name: str) -> None:
    for path, text in script(name)["rendered"]().items():
        assert path.read_text() == text, f"{path.name}: run make docs"


def test_every_method_has_a_page_that_says_what_it_must() -> None:
    from subbit.methods.names import METHODS

    folder = ROOT / "docs" / "methods"
    assert {path.stem for path in folder.glob("*.md")} - {"overview"} == set(METHODS)
    for name in METHODS:
        text = (folder / f"{name}.md").read_text()
        parts = dict(re.findall(r"^## (.*?)\n\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
        assert [*parts] == ["Idea", "Equations", "When to take it", "Use", "Keys", "In the arena"], name
        assert len(re.findall(r"[.!?](?:\s|$)", parts["Idea"])) == 3, f"{name}: the idea has three sentences"
        assert re.fullmatch(r"\$\$\n.*?\n\$\$\n\n", parts["Equations"], re.DOTALL), name
        assert "`map`" in parts["Keys"] or "`epochs`" in parts["Keys"], name


def test_an_entry_of_the_arena_is_a_row_of_the_method_that_it_runs(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "tiny.toml").write_text(
        'what = "tiny"\n[base]\nrounds = 1\n[methods.head-alone]\n[methods.fedavg]\n[methods.lora]\n'
        'run = "fedpeft:tuning=lora"\n[methods.waiting]\nrun = "fedpm"\n'
    )
    (job,) = read_jobs(jobs).values()
    for label in ("head-alone", "fedavg", "lora"):
        record = Record("tiny", label, job.fingerprint(job.entries[label]), chosen="", runs=[run(0, 0.7, [0.7], 1000)])
        write_record(tmp_path, record)
    render = script("methods")
    rows = render["arena_rows"](jobs, tmp_path)
    assert {name: [row[:2] for row in found] for name, found in rows.items()} == {
        "fedavg": [["tiny", "`fedavg`"]],
        "fedpeft": [["tiny", "`lora`"]],
    }
    pages = render["rendered"](jobs, tmp_path)
    assert "| tiny | `lora` | 0.7" in pages[ROOT / "docs" / "methods" / "fedpeft.md"]
    assert "No results yet" in pages[ROOT / "docs" / "methods" / "fedpm.md"]


def test_a_page_shows_the_methods_it_names_and_the_bounds_of_their_jobs(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    entries = '[methods.head-alone]\n[methods.fedavg]\n[methods.lora]\nrun = "fedpeft:tuning=lora"\n'
    for name in ("one", "two"):
        (jobs / f"{name}.toml").write_text(f'what = "tiny"\n[base]\nrounds = 1\n{entries}')
    for name, job in read_jobs(jobs).items():
        for label in ("head-alone", "fedavg", "lora") if name == "one" else ("head-alone", "fedavg"):
            found = [run(0, 0.7, [0.7], 1000)]
            write_record(tmp_path, Record(name, label, job.fingerprint(job.entries[label]), chosen="", runs=found))
    render = script("arena_rows")
    standings = [render["standing"](tmp_path, job) for job in read_jobs(jobs).values()]
    shown = [row[:2] for row in render["rows"](standings, ["fedpeft", "fedavg"])]
    assert shown == [["one", "`head-alone` (floor)"], ["one", "`fedavg`"], ["one", "`lora`"]]
    page = "a\n<!-- arena: fedpm -->\nold\n<!-- /arena -->\nb\n"
    assert render["rendered_page"](page, standings) == page.replace("old", "\nNo results yet.\n")


def test_the_picture_names_the_fields_of_a_frame() -> None:
    """The offsets are those of `subbit.wire.frame`, and together they are its header."""
    fields = runpy.run_path(str(ROOT / "benchmarks" / "draw_round.py"))["FIELDS"]
    assert [length for _, _, length in fields] == [4, 1, 1, 1, 1, 8, 4, 4, 4, 4, 4, 4]
    assert fields[-1][1] + fields[-1][2] == HEADER_BYTES == struct.calcsize("<4s4B8s6I")
    picture = (ROOT / "docs" / "frame.svg").read_text()
    assert all(f">{byte:02x}</text>" in picture for byte in MAGIC)
