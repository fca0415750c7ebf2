"""`subbit paper` from a protocol to a verdict, on digits; smokes of a few real protocols."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.core.errors import ConfigError, RunFolderError
from subbit.papers.best_known import best_known
from subbit.papers.computed import compute
from subbit.papers.paper_runs import make_run, missing_runs, planned, read_runs, record_path, run_missing
from subbit.papers.paper_tables import Judged, judged
from subbit.papers.protocols import read_protocol, read_protocols

ROOT = Path(__file__).parents[2]
PROTOCOL = """
what = "digits <b>in</b> seconds"
seeds = 2

[base]
dataset = "digits"
limit = 200
test_limit = 100
clients = 3
partition = "iid"
model = "mlp"
head = "keep"
select = "all"
rounds = 2
batch_size = 16
learning_rate = 0.003

[rows.FedAvg]
run = "fedavg"

[rows.EDEN]
run = "eden"

[rows.Nobody]
missing = "nobody wrote it"

[columns.digits]

[printed.accuracy]
FedAvg = ["99.9"]
EDEN = ["12.0"]
Nobody = ["1.0"]

[printed.bpp]
FedAvg = ["32"]
EDEN = ["1"]

[[relations]]
says = "EDEN sends less"
metric = "bpp"
left = "EDEN"
sign = "<"
right = "FedAvg"

[[derived]]
says = "bits saved"
metric = "bpp"
left = "FedAvg"
op = "over"
right = "EDEN"
printed = ["32"]

[[readings]]
id = "X1"
says = "which"
metric = "bpp"
column = "digits"
printed = "1"
rows = ["FedAvg", "EDEN"]

[[computed]]
says = "a third"
function = "ratio"
options = { left = 1, right = 3 }
printed = "0.33"

[cpu]
shrunk = ["one round"]
seeds = 1

[cpu.base]
rounds = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "papers" / "000" / "table-1.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PROTOCOL)
    return path.parents[1]


def verdicts(found: Judged) -> dict[tuple[str, str], str]:
    return {(cell.says, cell.metric): cell.verdict for cell in found.cells}


def test_runs_are_made_once_and_judged(folder: Path, tmp_path: Path) -> None:
    protocol, results = read_protocols(folder)["000/table-1"], tmp_path / "results"
    before = judged(protocol, "paper", results, ROOT)
    assert verdicts(before)["FedAvg, digits", "accuracy"] == "not run"
    assert verdicts(before)["Nobody, digits", "accuracy"] == "cannot be run here"
    assert verdicts(before)["a third", "computed"] == "holds"
    told: list[str] = []
    made = [*run_missing(results, missing_runs(results, [protocol], "paper"), None, told.append)]
    assert [(run["row"], run["seed"]) for run in made] == [("FedAvg", 0), ("EDEN", 0), ("FedAvg", 1), ("EDEN", 1)]
    assert missing_runs(results, [protocol], "paper") == []
    found = judged(protocol, "paper", results, ROOT)
    assert found.shrunk == ()
    shown = verdicts(found)
    assert shown["FedAvg, digits", "bpp"] == shown["EDEN, digits", "bpp"] == "holds"
    assert shown["EDEN, digits", "accuracy"] == "does not hold"  # Nothing is shrunk, and it learns more than 12%.
    assert shown["EDEN sends less", "bpp"] == "holds"
    assert shown["bits saved, digits", "bpp"] == "holds"
    assert shown["X1: which: EDEN", "bpp"] == "holds"
    assert shown["X1: which: FedAvg", "bpp"] == "does not hold"
    assert found.verdict == "does not hold"


def test_at_a_smaller_scale_only_the_order_counts(folder: Path, tmp_path: Path) -> None:
    protocol, results = read_protocols(folder)["000/table-1"], tmp_path / "results"
    for run in missing_runs(results, [protocol], "cpu"):
        make_run(results, run)
    found = judged(protocol, "cpu", results, ROOT)
    assert found.shrunk == ("one round",)
    assert verdicts(found)["FedAvg, digits", "bpp"] == "holds in shape"
    assert verdicts(found)["FedAvg, digits", "accuracy"] == "undecided"  # One seed, and they are level.
    assert verdicts(found)["X1: which: EDEN", "bpp"] == "undecided"
    assert best_known(protocol, results, ROOT).scale == "cpu"


def test_it_goes_on_after_a_kill_and_a_changed_protocol_keeps_what_still_holds(folder: Path, tmp_path: Path) -> None:
    protocol, results = read_protocols(folder)["000/table-1"], tmp_path / "results"
    runs = missing_runs(results, [protocol], "paper")
    make_run(results, runs[0])
    assert missing_runs(results, [protocol], "paper") == runs[1:]
    path = protocol.path
    path.write_text(PROTOCOL.replace('run = "eden"', 'run = "eden:bits=2"').replace("digits <b>", "other <b>"))
    changed = read_protocol(path)
    assert [run.row for run in missing_runs(results, [changed], "paper")] == ["EDEN", "FedAvg", "EDEN"]
    path.write_text(PROTOCOL.replace("rounds = 2", "rounds = 3"))
    assert len(missing_runs(results, [read_protocol(path)], "paper")) == 4


def test_a_run_that_cannot_be_made_is_not_kept(folder: Path, tmp_path: Path) -> None:
    path = folder / "000" / "table-1.toml"
    path.write_text(PROTOCOL.replace('dataset = "digits"', 'dataset = "eurosat"'))
    protocol, results = read_protocol(path), tmp_path / "results"
    found = make_run(results, planned(protocol, "paper")[0])
    assert "eurosat" in found["error"]
    assert read_runs(results, protocol, "paper") == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"runs": 3}', '{"runs": [{}]}', "\x00"])
def test_a_damaged_result_is_said_to_be_one(folder: Path, tmp_path: Path, text: str) -> None:
    protocol, results = read_protocols(folder)["000/table-1"], tmp_path / "results"
    path = record_path(results, protocol, "cpu")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RunFolderError, match="not a result of subbit paper"):
        read_runs(results, protocol, "cpu")


def test_no_run_starts_beyond_the_budget(folder: Path, tmp_path: Path) -> None:
    protocol, results = read_protocols(folder)["000/table-1"], tmp_path / "results"
    told: list[str] = []
    assert [*run_missing(results, missing_runs(results, [protocol], "paper"), -1.0, told.append)] == []
    assert "would exceed the budget" in told[0]


def test_computed_numbers() -> None:
    """By hand, and from the papers' own arithmetic."""
    assert compute("tuned_parameters", {"model": "vit-b16", "tuning": "bias", "classes": 100}) == 179_812
    assert compute("aggregated_probability", {"ones": 30, "clients": 30, "masks": "mean", "estimator": "mode"}) == (
        pytest.approx(1 / 30)
    )
    assert compute("empty_columns", {"rows": 9, "columns": 9, "degree": 1, "form": "exact"}) == (8 / 9) ** 9
    assert compute("transmission_hours", {"megabytes": 36, "rounds": 50, "megabytes_per_second": 1}) == 1.0
    with pytest.raises(ConfigError, match="ratio"):
        compute("ration", {})
    with pytest.raises(ConfigError, match="ratio"):
        compute("ratio", {"top": 1})


def test_the_command(folder: Path, tmp_path: Path) -> None:
    where = ["--protocols", str(folder), "--results", str(tmp_path / "results")]
    run = CliRunner().invoke
    listed = run(app, ["paper", "LIST", *where])
    assert listed.exit_code == 0
    assert "table-1" in listed.stdout
    records = json.loads(run(app, ["paper", "000", "table-1", "--json", *where]).stdout)
    assert records[0]["verdict"] == "holds"  # Of what is known: the computed number.
    assert len(records[0]["cells"]) == 10
    shown = run(app, ["paper", "000", "--scale", "cpu", *where])
    assert shown.exit_code == 0
    assert "one round" in shown.stdout
    assert isinstance(run(app, ["paper", "000", "table-9", *where]).exception, ConfigError)
    assert isinstance(run(app, ["paper", "777", *where]).exception, ConfigError)
    assert isinstance(run(app, ["paper", "000", "--scale", "huge", *where]).exception, ConfigError)


FILES = sorted(path for path in (ROOT / "experiments" / "papers").glob("*/*.toml") if path.stem != "common")


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_everything_runs_at_the_smallest_scale(path: Path, tmp_path: Path) -> None:
    """What `subbit paper '*' --scale smoke` does."""
    protocol = read_protocol(path)
    runs = missing_runs(tmp_path, [protocol], "smoke")
    if not runs:
        return  # A drawing, computed numbers, or runs of another table.
    for run in runs:
        assert "error" not in make_run(tmp_path, run)
    assert judged(protocol, "smoke", tmp_path, ROOT).shrunk
