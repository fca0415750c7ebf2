"""The report of `subbit paper`: every value with its verdict in words, printed and ours on one axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.core.errors import ConfigError, RunFolderError
from subbit.pages.paper_page import HEADINGS, in_words, paper_page
from subbit.papers.best_known import best_known, ours_text
from subbit.papers.paper_tables import Cell, Judged
from subbit.papers.protocols import Protocol, read_protocol, read_protocols
from tests.pages.hand_made import HOSTILE
from tests.pages.pages_parser import check_page

ROOT = Path(__file__).parents[2]
PAPERS = ("001", "002")
"""Those whose computed numbers need no large network."""


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    path = tmp_path / "papers" / "000" / "table-1.toml"
    path.parent.mkdir(parents=True)
    rows = {"rows": {"A": {"missing": "nobody has it"}}, "columns": {"digits": {}}}
    path.write_text(tomli_w.dumps({"what": HOSTILE, "note": "<b>bold</b>", **rows}))
    return read_protocol(path)


def cell(says: str, metric: str, ours: float | None, verdict: Any, **others: Any) -> Cell:
    theirs = {} if ours is None else {"theirs": 93.5}
    return Cell("value", says, metric, "93.5", ours, 0.0, 2, verdict, **{**theirs, **others})


def test_every_value_has_its_verdict_and_both_are_on_one_axis(protocol: Protocol) -> None:
    cells = (
        cell(HOSTILE, "accuracy", 93.0, "holds in shape"),
        cell("B", "accuracy", 50.0, "does not hold", why=HOSTILE),
        cell("C", "bpp", None, "not run"),
        cell("a reading", "accuracy", 12.0, "undecided", counts=False),
    )
    found = Judged(protocol, "cpu", cells, ("one round", HOSTILE))
    page = check_page(paper_page([found]))
    assert "000 table-1: of 3 values, 1 does not hold, 1 holds in shape, 1 was not run." in page.text
    (region,) = page.all("div", **{"aria-label": "000 table-1: values"})
    names = [each["text"] for each in page.inside(region, "th")][len(HEADINGS) :]
    assert names == [each.says for each in cells]
    told = [each["text"] for each in page.inside(region, "td")]
    wide = len(HEADINGS) - 1
    assert [told[place + 4] for place in range(0, len(told), wide)] == [each.verdict for each in cells]
    assert [told[place + 2] for place in range(0, len(told), wide)] == [ours_text(each) for each in cells]
    (plot,) = page.plots.values()
    assert [(each["name"], each["y"]) for each in plot["series"]] == [
        ("printed", [93.5, 93.5, 93.5]),
        ("ours", [93.0, 50.0, 12.0]),
    ]
    assert plot["series"][0]["text"][0] == HOSTILE
    assert {"one round", HOSTILE} <= {each["text"] for each in page.all("li")}
    assert "subbit paper 000 table-1 --scale cpu" in page.text


def test_a_sentence_counts_the_verdicts() -> None:
    assert in_words([]) == "there is nothing to measure."
    verdicts = ["holds"] * 2 + ["undecided"]
    cells = [cell("x", "bpp", None, each) for each in verdicts]
    assert in_words(cells) == "of 3 values, 2 hold, 1 is undecided."


def test_all_tables_of_a_paper_fit_on_one_page() -> None:
    results = ROOT / "benchmarks" / "results" / "papers"
    known = read_protocols(ROOT / "experiments" / "papers")
    found = [best_known(each, results, ROOT) for each in known.values() if each.paper in PAPERS]
    page = check_page(paper_page(found))
    assert f"{len(found)} tables and figures: of " in page.text
    cells = [cell for each in found if not each.protocol.header.drawing for cell in each.cells]
    tables = [each for each in page.all("div", role="region") if str(each["aria-label"]).endswith(": values")]
    assert sum(len(page.inside(each, "tr")) - 1 for each in tables) == len(cells)
    assert page.plots


def test_the_command_writes_it_and_spares_other_files(protocol: Protocol, tmp_path: Path) -> None:
    where = ["--protocols", str(protocol.path.parents[1]), "--results", str(tmp_path / "results")]
    out = tmp_path / "report.html"
    for _ in range(2):  # The second time it replaces its own.
        done = CliRunner().invoke(app, ["paper", "000", *where, "--report", str(out)])
        assert done.exit_code == 0, done.output
        assert f"report in {out}" in done.stderr
    assert "nothing to measure" in check_page(out.read_text(encoding="utf-8")).text
    out.write_text("mine")
    refused = CliRunner().invoke(app, ["paper", "000", *where, "--report", str(out)])
    assert isinstance(refused.exception, RunFolderError)
    assert out.read_text() == "mine"
    for words in (["LIST"], ["000", "--dry-run"]):
        refused = CliRunner().invoke(app, ["paper", *words, *where, "--report", str(tmp_path / "other.html")])
        assert isinstance(refused.exception, ConfigError)
