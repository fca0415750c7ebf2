"""`subbit list`: everything fits 80 columns, and a page says all about one component."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.cli.running import build_and_try
from subbit.config.resolve import resolve
from subbit.core.own_components import own_keys, read_own
from subbit.report.catalogue import KINDS, catalogue

WIDE = 80


def _name(value: object) -> str:
    return value["name"] if isinstance(value, dict) else str(value)


def printed(*words: str) -> str:
    done = CliRunner().invoke(app, ["list", *words], env={"COLUMNS": str(WIDE), "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("what", KINDS)
def test_a_list_fits_the_terminal_and_names_everything(what: str) -> None:
    text, rows = printed(what), catalogue(what)
    assert max(map(len, text.splitlines())) <= WIDE
    assert all(row["name"] in text for row in rows)
    assert printed(what, "--quiet").split() == [row["name"] for row in rows]


def test_a_method_is_one_line_that_is_not_cut() -> None:
    lines, rows = printed("methods").splitlines(), catalogue("methods")
    assert len(lines) == 1 + len(rows) + 1
    for line, row in zip(lines[1:-1], rows, strict=True):
        assert line.split()[0] == row["name"]
        assert line.rstrip().endswith(row["what"].rpartition(": ")[2])


@pytest.mark.parametrize(("what", "row"), [(what, row) for what in KINDS for row in catalogue(what)], ids=_name)
def test_a_page_fits_the_terminal_and_has_every_key(what: str, row: dict[str, str]) -> None:
    text = printed(what, row["name"])
    assert max(map(len, text.splitlines())) <= WIDE
    if what == "methods":
        own = own_keys()["methods"][row["name"]]
        for key in own["keys"]:
            assert f"  {key['key']}={str(key['default']).lower()}" in text.lower()
        for part in (row["citation"], row["up"], row["down"], *own["presets"]):
            assert " ".join(part.split()) in " ".join(text.split())
        assert own["example"] in text


def test_every_key_of_ours_says_what_it_means() -> None:
    """Except those that are torch's own, whose names are its arguments."""
    known = own_keys()
    rows = [*known["run"], *(row for method in known["methods"].values() for row in method["keys"])]
    silent = {row["key"] for row in rows if not row["what"] and not row.get("from", "").startswith("optimizer=")}
    assert silent == set()


@pytest.mark.parametrize("name", [row["name"] for row in read_own("methods") or ()])
def test_the_example_of_a_method_runs(name: str) -> None:
    """Its words make a job that can be tried; two examples and clients, to be quick."""
    example = own_keys()["methods"][name]["example"].removeprefix("subbit run ").split()
    clients = [] if any(word.startswith("clients=") for word in example) else ["clients=2"]
    build_and_try(resolve({}, [*example, *clients, "limit=40", "test_limit=20"]))


def test_an_unknown_name_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["list", "methods", "detlamask"])
    assert "did you mean 'deltamask'?" in str(done.exception)
