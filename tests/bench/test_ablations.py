"""The flagship with one idea off at a time: what is run, what is kept, and what the page says of it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subbit.arena.jobs import Job, read_job
from subbit.config.resolve import Settings
from subbit.core.errors import DataError, QuorumError

ROOT = Path(__file__).parents[2]
JOB = """
what = "digits in seconds"
minutes = 0.1
[base]
dataset = "digits"
limit = 120
test_limit = 60
clients = 4
participation = 0.5
model = "mlp"
rounds = 4
evaluate_every = 1
workers = 1
[methods.subbit]
run = "subbit:batch_size=16"
"""
SPENT = {"uplink_bytes": 600, "downlink_bytes": 1800, "participants": 4, "rounds": 2, "total_bytes": 5400}
SUMMARY = {"score": 0.5, "score_name": "accuracy", "higher_is_better": True, **SPENT}


@pytest.fixture
def ablations(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("ablations")


@pytest.fixture
def tables(ablations: Any) -> Any:
    return importlib.import_module("ablation_tables")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    path = tmp_path / "jobs" / "tiny.toml"
    path.parent.mkdir()
    path.write_text(JOB)
    return read_job(path)


@pytest.fixture
def few(ablations: Any, tmp_path: Path) -> Any:
    return ablations.Experiment(tmp_path / "few.json", ("tiny",), {"default": "", "one-epoch": "epochs=1"})


class Counted:
    """Runs that take no time; some of them fail."""

    def __init__(self, fails: Callable[[Settings], BaseException | None] = lambda settings: None) -> None:
        self.made: list[tuple[int, int]] = []
        self.fails = fails

    def __call__(self, stages: Sequence[Settings]) -> dict[str, Any]:
        (settings,) = stages
        self.made.append((settings.parameters.local.epochs, settings.run.seed))
        error = self.fails(settings)
        if error is not None:
            raise error
        return {**SUMMARY, "score": 0.5 + 0.01 * settings.run.seed}


def run_missing(module: Any, few: Any, jobs: Sequence[Job], run: Any, **options: Any) -> list[str]:
    told: list[str] = []
    planned = module.plan(few, jobs, [*few.rows], options.get("seeds", (0, 1)))
    todo = [each for each in planned if module.is_missing(few.results, each, options.get("retry", False))]
    module.run_all(few.results, todo, options.get("minutes"), told.append, run)
    return told


def test_every_row_resolves_and_changes_what_it_names(ablations: Any) -> None:
    for experiment in (ablations.ABLATIONS, ablations.BUDGETS):
        for path in sorted((ROOT / "experiments" / "arena").glob("*.toml")):
            job = read_job(path)
            if "subbit" not in job.entries:
                continue
            default = ablations.Planned.of(job, "default", "").settings
            assert (default.run.rounds, default.run.validation) == (job.base["rounds"] // 2, None)
            assert default.run.evaluate_every == default.run.rounds
            for row, keys in experiment.rows.items():
                found = ablations.Planned.of(job, row, keys).settings
                assert found.run == default.run
                assert (found.parameters == default.parameters) == (row == "default"), row
    assert {*ablations.BUDGETS.jobs} <= {*ablations.ABLATIONS.jobs} == {"vision", "skewed"}


def test_all_rows_have_a_seed_before_the_next_and_nothing_runs_twice(ablations: Any, job: Job, few: Any) -> None:
    killed = Counted(lambda settings: KeyboardInterrupt() if settings.run.seed == 1 else None)
    with pytest.raises(KeyboardInterrupt):
        run_missing(ablations, few, [job], killed)
    assert killed.made == [(3, 0), (1, 0), (3, 1)]
    rest = Counted()
    run_missing(ablations, few, [job], rest)
    assert rest.made == [(3, 1), (1, 1)]
    run_missing(ablations, few, [job], rest)
    assert len(rest.made) == 2
    kept = json.loads(few.results.read_text())["tiny"]["one-epoch"]
    assert [run["seed"] for run in kept["runs"]] == [0, 1]
    assert {"score", "wall", "cpu", "uplink_bytes"} <= {*kept["runs"][0]}


def test_what_was_run_with_other_keys_is_run_again(ablations: Any, job: Job, few: Any) -> None:
    run_missing(ablations, few, [job], Counted())
    changed, again = replace(few, rows={**few.rows, "one-epoch": "epochs=2"}), Counted()
    run_missing(ablations, changed, [job], again)
    assert again.made == [(2, 0), (2, 1)]
    for base, count in (({"workers": 2}, 0), ({"limit": 100}, 4)):
        again = Counted()
        run_missing(ablations, changed, [replace(job, base={**job.base, **base})], again)
        assert len(again.made) == count, base


def test_another_default_voids_a_result_and_a_new_key_does_not(ablations: Any, job: Job, few: Any) -> None:
    run_missing(ablations, few, [job], Counted())
    kept = json.loads(few.results.read_text())
    del kept["tiny"]["default"]["spec"]["subbit.local.guard"]
    kept["tiny"]["one-epoch"]["spec"]["subbit.local.learning_rate"] = 0.005
    few.results.write_text(json.dumps(kept))
    again = Counted()
    run_missing(ablations, few, [job], again)
    assert again.made == [(1, 0), (1, 1)]
    unguarded = replace(few, rows={"default": "guard=false"})
    run_missing(ablations, unguarded, [job], again)
    assert again.made[2:] == [(3, 0), (3, 1)], "a row that sets the new key is another one"


@pytest.mark.parametrize("error", [QuorumError("nobody answered"), ValueError("a mistake")])
def test_a_run_that_fails_is_kept_and_the_others_go_on(ablations: Any, job: Job, few: Any, error: Exception) -> None:
    first = Counted(lambda settings: error if (settings.parameters.local.epochs, settings.run.seed) == (3, 0) else None)
    run_missing(ablations, few, [job], first)
    assert len(first.made) == 4
    kept = json.loads(few.results.read_text())["tiny"]["default"]["runs"]
    assert str(error) in kept[0]["error"]
    assert "error" not in kept[1]
    again = Counted()
    run_missing(ablations, few, [job], again)
    assert again.made == []
    run_missing(ablations, few, [job], again, retry=True)
    assert again.made == [(3, 0)]


def test_data_that_are_not_here_are_no_result(ablations: Any, job: Job, few: Any) -> None:
    told = run_missing(ablations, few, [job], Counted(lambda settings: DataError("not on this machine")))
    assert sum("not run: not on this machine" in line for line in told) == 4
    assert not few.results.exists()


def test_no_run_starts_that_would_exceed_the_budget(ablations: Any, job: Job, few: Any) -> None:
    """Three seconds a run, as the job's file says of whole ones; then as long as the row took."""
    run = Counted()
    told = run_missing(ablations, few, [job], run, minutes=2.9 / 60)
    assert run.made == []
    assert "would exceed" in told[-1]
    run_missing(ablations, few, [job], run, seeds=(0,), minutes=1)
    kept = json.loads(few.results.read_text())
    kept["tiny"]["default"]["runs"][0]["wall"] = 90.0
    few.results.write_text(json.dumps(kept))
    run_missing(ablations, few, [job], run, minutes=1)
    assert run.made == [(3, 0), (1, 0)]


def test_a_dry_run_lists_and_runs_nothing(
    ablations: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(ablations, "ABLATIONS", replace(ablations.ABLATIONS, results=tmp_path / "none.json"))
    monkeypatch.setattr(ablations, "run_all", lambda *given: pytest.fail("ran"))
    ablations.main(["skewed", "vision", "--rows", "default", "no-guard", "--seeds", "0", "1", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("8 of 8 runs")
    assert [line.split(":")[0] for line in lines[1:5]] == [
        f"{job} {row}" for job in ("skewed", "vision") for row in ("default", "no-guard")
    ]
    for wrong in (["--rows", "no-such"], ["personal"], ["no-such-job"]):
        with pytest.raises(SystemExit):
            ablations.main([*wrong, "--dry-run"])


def found_runs(scores: Sequence[float], **values: Any) -> list[dict[str, Any]]:
    return [
        {**SUMMARY, "seed": seed, "score": score, "cpu": 9.0, "wall": 9.0, **values}
        for seed, score in enumerate(scores)
    ]


def keep_all(module: Any, experiment: Any, job: Job, rows: dict[str, list[dict[str, Any]]]) -> None:
    for row, runs in rows.items():
        for run in runs:
            planned = module.Planned.of(job, row, experiment.rows[row], run["seed"])
            module.keep(experiment.results, planned, run)


def test_the_table_of_ablations(
    ablations: Any, tables: Any, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a spread of 0.01 in each row, means are told apart beyond 0.02: 0.77 and 0.80 are, 0.781 is not."""
    experiment = replace(ablations.ABLATIONS, results=tmp_path / "made-up.json", jobs=("tiny", "other"))
    runs = {
        "default": found_runs([0.79, 0.80, 0.81]),
        "no-guard": found_runs([0.771, 0.781, 0.791]),
        "no-calibration": found_runs([0.76, 0.77, 0.78]),
        "random-basis": found_runs([0.84, 0.85]),
        "one-epoch": found_runs([0.70]),
        "momentum": [{"seed": 0, "error": "it failed", "wall": 1.0, "cpu": 1.0}],
        "few-values": [*found_runs([0.79, 0.80]), {"seed": 2, "error": "it failed", "wall": 1.0, "cpu": 1.0}],
    }
    keep_all(ablations, experiment, job, runs)
    monkeypatch.setitem(tables.RUNS, "ABLATIONS", experiment)
    lines = tables.ablations({"ablations": tables.measured(experiment, tmp_path / "jobs")}).splitlines()
    assert lines[0] == "*tiny*, 2 rounds instead of 4:"
    shown = {line.split(" | ")[1].strip("`"): line.strip("| ").split(" | ")[2:] for line in lines if line[:1] == "|"}
    assert shown["keys"][:3] == ["accuracy", "points more than the default", "told apart from it"]
    assert shown["-"] == ["0.800 ± 0.010", "-", "-", "300", "9", "3"]
    assert shown["guard=false"] == ["0.781 ± 0.010", "-1.9", "no", "300", "9", "3"]
    assert shown["calibrate=false"][:3] == ["0.770 ± 0.010", "-3.0", "yes, worse"]
    assert shown["basis=random"][1:3] == ["+5.0", "yes, better"], "over the two seeds that both have"
    assert shown["epochs=1"] == ["0.700", "-9.0", "one seed", "300", "9", "1"]
    assert shown["server_momentum=0.5"] == ["failed", "-", "-", "-", "-", "0, 1 failed"]
    assert shown["dimensions=2048"][-1] == "2, 1 failed"
    assert shown["codec=dense down_codec=dense"][0] == "not measured yet"
    assert lines[-1] == "Not measured yet: `python benchmarks/ablations.py other`."


def test_lower_perplexity_is_better(tables: Any) -> None:
    """A difference of 4 is told apart in the logarithm, as in the arena."""
    about = {"score_name": "perplexity", "higher_is_better": False}
    low, high = found_runs([76.0, 76.1, 76.2], **about), found_runs([80.0, 80.1, 80.2], **about)
    assert tables.compared(low, high) == ["-4.0", "yes, better"]
    assert tables.compared(high, low) == ["+4.0", "yes, worse"]
    assert tables.compared(low, []) == ["-", "not measured yet"]


def test_results_of_other_keys_are_not_shown(ablations: Any, tables: Any, job: Job, few: Any, tmp_path: Path) -> None:
    keep_all(ablations, few, job, {"default": found_runs([0.8]), "one-epoch": found_runs([0.7])})
    (found,) = tables.measured(replace(few, rows={**few.rows, "one-epoch": "epochs=2"}), tmp_path / "jobs")
    assert [len(found.rows[row]) for row in few.rows] == [1, 0]


def test_the_share_of_a_budget_is_measured_on_frames(
    ablations: Any, tables: Any, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 600 bytes up and 1,800 down for 4 clients in 2 rounds are 300. And once in a real run."""
    experiment = replace(ablations.BUDGETS, results=tmp_path / "budgets.json", jobs=("tiny",))
    keep_all(ablations, experiment, job, {"600": found_runs([0.5, 0.5])})
    ablations.run_all(experiment.results, [ablations.Planned.of(job, "2400", "bytes=2400")], None, lambda line: None)
    monkeypatch.setitem(tables.RUNS, "BUDGETS", experiment)
    (found,) = tables.measured(experiment, tmp_path / "jobs")
    section = tables.budgets({"budgets": [found]})
    assert "| `bytes=150` | not measured yet | - | - | - | 0 |" in section
    assert "| `bytes=600` | 0.500 ± 0.000 | 300.0 | 50.0% | 9 | 2 |" in section
    assert 0.98 * 2400 <= tables.spent(found.scored("2400")) <= 2400


def test_without_results_a_section_is_one_line(ablations: Any, tables: Any, tmp_path: Path) -> None:
    found = tables.measured(replace(ablations.BUDGETS, results=tmp_path / "none.json"))
    assert tables.budgets({"budgets": found}) == "Not measured yet: `python benchmarks/ablations.py --budgets`."


def test_the_page_shows_the_committed_results(ablations: Any) -> None:
    render = importlib.import_module("render_flagship")
    text = render.PAGE.read_text()
    assert render.rendered_page(text) == text, "run benchmarks/render_flagship.py"
