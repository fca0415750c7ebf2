"""The protocols of the five papers: all are there, and all resolve without data or weights."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from subbit.core.errors import ConfigError
from subbit.papers.computed import FUNCTIONS
from subbit.papers.costs import estimate, read_rates
from subbit.papers.paper_runs import cells_run, planned
from subbit.papers.protocols import SCALES, Protocol, read_protocol, read_protocols

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "papers"
PAPERS = {
    "000": ("table", range(1, 7), "figure", range(1, 7)),
    "001": ("table", range(1, 2), "figure", range(1, 4)),
    "002": ("table", range(1, 5), "figure", range(1, 7)),
    "003": ("table", range(1, 11), "figure", range(1, 5)),
    "004": ("table", range(1, 6), "figure", range(1, 16)),
}
"""Numbers of the tables and figures that each paper has."""


@pytest.fixture(scope="module")
def protocols() -> dict[str, Protocol]:
    return read_protocols(FOLDER)


def test_every_table_and_figure_is_there_once(protocols: dict[str, Protocol]) -> None:
    expected = {
        f"{paper}/{kind}-{number}"
        for paper, (table, tables, figure, figures) in PAPERS.items()
        for kind, numbers in ((table, tables), (figure, figures))
        for number in numbers
    }
    kinds = ("table", "figure")
    assert {label for label, each in protocols.items() if each.name.startswith(kinds)} == expected
    for each in protocols.values():
        assert each.header.kind == each.name.partition("-")[0]


def test_a_protocol_has_something_to_say_or_is_a_drawing(protocols: dict[str, Protocol]) -> None:
    for label, each in protocols.items():
        told = each.claims
        claims = (*told.printed, *told.derived, *told.relations, *told.readings, *told.computed, *told.impossible)
        assert bool(claims) != each.header.drawing, label
        assert each.header.drawing or all(claim.function in FUNCTIONS for claim in told.computed), label


@pytest.mark.parametrize("scale", SCALES)
def test_every_contender_resolves(protocols: dict[str, Protocol], scale: str) -> None:
    """No data set and no network is loaded for this: `resolve` checks the keys."""
    resolved = 0
    for each in protocols.values():
        for run in planned(each, scale, 1):
            assert run.settings.run.seed == each.header.first_seed
            resolved += 1
    assert resolved > {"paper": 500, "cpu": 150, "smoke": 80}[scale]


def test_at_the_papers_scale_nothing_is_shrunk(protocols: dict[str, Protocol]) -> None:
    for label, each in protocols.items():
        assert each.scales["paper"].shrunk == (), label
        assert not each.scales["paper"].base, label
        for scale in ("cpu", "smoke"):
            if scale in each.scales and cells_run(each, each.scales[scale]) and not each.scales[scale].none:
                assert each.scales[scale].shrunk, f"{label}: says nothing of what is smaller at {scale}"


def test_the_papers_own_numbers_are_in_the_settings(protocols: dict[str, Protocol]) -> None:
    """A few by hand, from the text of the papers."""

    def settings(label: str, row: str, column: str) -> object:
        runs = planned(protocols[label], "paper", 1)
        return next(run.settings for run in runs if (run.row, run.column) == (row, column))

    delta = settings("000/table-3", "DeltaMask, rho 0.2", "CIFAR-100")
    assert (delta.run.clients, delta.run.rounds, delta.run.alpha, delta.run.participation) == (30, 300, 0.1, 0.2)
    assert (delta.parameters.local.epochs, delta.parameters.local.batch_size) == (1, 64)
    assert delta.parameters.local.learning_rate == 0.1
    bias = settings("003/table-1", "FedPEFT-Bias", "PCam")
    assert (bias.run.clients, bias.run.participation, bias.run.rounds, bias.run.alpha) == (64, 0.125, 50, 0.5)
    assert (bias.parameters.local.epochs, bias.parameters.local.learning_rate) == (10, 0.01)
    mask = settings("001/table-1", "non-IID, random mask", "CIFAR-100")
    assert (mask.run.clients, mask.run.participation, mask.run.classes_per_client) == (100, 0.1, 2)
    assert mask.parameters.local.epochs == 4
    local = settings("002/table-2", "d = 50", "16")
    assert (local.parameters.map.degree, local.parameters.map.compression) == (50, 16)
    fed = settings("004/figure-10", "FedMask", "IC-CIFAR10")
    assert (fed.run.clients * fed.run.participation, fed.parameters.pruning.pruned_layers) == (20, 8)


def test_every_runnable_protocol_has_a_cost(protocols: dict[str, Protocol]) -> None:
    rates = read_rates(ROOT / "benchmarks" / "results" / "papers" / "rates.json")
    for label, each in protocols.items():
        cost = estimate(each, "paper", rates)
        assert cost.unknown == (), label
        assert (cost.core_hours > 0) == (cost.runs > 0), label


def test_the_page_is_up_to_date() -> None:
    render = runpy.run_path(str(ROOT / "benchmarks" / "render_papers.py"))
    page = (ROOT / "docs" / "papers.md").read_text()
    assert render["rendered_page"](page) == page


BROKEN = {
    'what = "x"\nkind = "poem"': "kind",
    'kind = "table"': "what",
    'what = "x"\n[rows.a]\nrun = "fedavg"\n[printed.accuracy]\nb = ["1"]': "no 'b'",
    'what = "x"\n[rows.a]\nrun = "fedavg"\n[printed.beauty]\na = ["1"]': "no 'beauty'",
    'what = "x"\n[rows.a]\nrun = "fedavg"\n[printed.accuracy]\na = ["1", "2"]': "one for each column",
    'what = "x"\n[rows.a]\nrum = "fedavg"': "unknown key 'rum'",
    'what = "x"\n[[relations]]\nsays = "?"\nmetric = "bpp"\nleft = "a"\nsign = "<"\nright = "b"': "no 'a'",
    'what = "x"\n[[computed]]\nsays = "?"\nfunction = "f"\nprinted = "many"': "needs a number",
    'what = "x"\n[cpu]\nonly_rows = ["z"]': "only_rows",
    'what = "x"\n[colums.a]': "unknown table",
    'what = "x"\nbase = 3': "base",
    "what = ": "not a TOML file",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_protocol_is_refused_with_its_file_and_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "000" / "table-1.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_protocol(path)
    assert str(path) in str(caught.value)
    assert BROKEN[text] in str(caught.value)


def test_a_contender_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    path = tmp_path / "000" / "table-1.toml"
    path.parent.mkdir()
    path.write_text('what = "x"\n[rows.mine]\nrun = "fedavg:kapa=1"\n')
    with pytest.raises(ConfigError, match=r"table-1\.toml: mine, all, paper: unknown key 'kapa'"):
        _ = planned(read_protocol(path), "paper")[0].settings
