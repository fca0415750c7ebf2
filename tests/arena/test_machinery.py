"""The arena from its job file to its table, on a job of seconds."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from subbit.arena import races
from subbit.arena.jobs import Job, read_job, read_jobs
from subbit.arena.kept_results import best_setting, read_record, record_path
from subbit.arena.races import Race, estimate, races_missing, run_missing, run_race, run_stages
from subbit.arena.standings import standing
from subbit.cli.entry import app
from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError, DataError, QuorumError
from subbit.data.examples import Examples
from subbit.report.baselines import kind
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job

JOB = """
what = "digits in seconds"
minutes = 0.1
seeds = 2
tuning_seed = 7

[base]
dataset = "digits"
limit = 200
test_limit = 100
clients = 4
model = "mlp"
head = "keep"
select = "all"
rounds = 2
batch_size = 16

[methods.head-alone]
[methods.central]
settings = ["learning_rate=0.01", "learning_rate=0.001"]
[methods.fedavg]
settings = ["learning_rate=0.003", "learning_rate=1e-9", "learning_rate=0.003,epochs=2"]
[methods.eden]
run = "fedavg:codec=eden"
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    path = tmp_path / "jobs" / "tiny.toml"
    path.parent.mkdir()
    path.write_text(JOB)
    return read_job(path)


def everything(job: Job) -> list[Any]:
    return [(job, entry, job.header.seeds) for entry in job.entries.values()]


def test_the_whole_arena_runs_once_and_shows_what_it_found(job: Job, tmp_path: Path) -> None:
    results = tmp_path / "results"
    made = list(run_missing(results, everything(job), None, lambda line: None))
    assert len(made) == 2 + (2 + 2) + (3 + 2) + 2
    assert list(run_missing(results, everything(job), None, lambda line: None)) == []
    record = read_record(results, job, job.entry("fedavg"))
    assert record.chosen != "learning_rate=1e-9"
    assert [run["seed"] for run in record.runs] == [0, 1]
    found = {row.method: row for row in standing(results, job).rows}
    assert [found[name].role for name in ("head-alone", "central", "fedavg")] == ["floor", "ceiling", "method"]
    assert found["fedavg"].run == f"fedavg:{record.chosen}"
    assert (found["eden"].total_mb or 0) < (found["fedavg"].total_mb or 0)
    printed = CliRunner().invoke(app, ["arena", "--json", "--jobs", str(tmp_path / "jobs"), "--results", str(results)])
    (told,) = json.loads(printed.stdout)
    assert [row["method"] for row in told["methods"]][:2] == ["head-alone", "central"]
    shown = CliRunner().invoke(app, ["arena", "--jobs", str(tmp_path / "jobs"), "--results", str(results)])
    assert "digits in seconds" in shown.stdout


def test_settings_are_tried_at_half_length_on_a_split_and_a_seed_of_their_own(job: Job) -> None:
    entry = job.entry("fedavg")
    (tried,) = Race(job, entry, "learning_rate=0.003,epochs=2", 7).stages(None)
    assert (tried.run.rounds, tried.run.seed, tried.run.validation) == (1, 7, 0.2)
    assert tried.parameters.local.epochs == 2
    (full,) = Race(job, entry, None, 1).stages("learning_rate=0.003")
    assert (full.run.rounds, full.run.seed, full.run.validation) == (2, 1, None)


def test_the_choice_never_reads_the_test_set(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other labels of the test examples, even other pixels, change no number of the tuning."""

    def tuned(results: Path) -> list[Any]:
        entry = job.entry("fedavg")
        for setting in entry.settings:
            run_race(results, Race(job, entry, setting, 7))
        record = read_record(results, job, entry)
        return [record.chosen, [(run["score"], run["score_before"], run["split"]) for run in record.tried]]

    honest = tuned(tmp_path / "one")
    monkeypatch.setattr("subbit.runtime.problem.load_dataset", _with_another_test_set)
    assert tuned(tmp_path / "other") == honest
    full = run_race(tmp_path / "other", Race(job, job.entry("fedavg"), None, 0))
    assert full["score"] < 0.3, "the real runs do read it"


def _with_another_test_set(*given: Any, **options: Any) -> Any:
    from subbit.data import load_dataset

    found = load_dataset(*given, **options)
    test = found.test
    assert isinstance(test, Examples)
    return replace(found, test=Examples(255 - test.tensor, (test.labels + 3) % 10))


def test_a_kill_loses_only_the_run_it_ends(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def killed(stages: Sequence[Settings]) -> dict[str, Any]:
        made.append(f"{stages[0].run.seed}")
        if len(made) == 3:
            raise KeyboardInterrupt
        return SUMMARY

    plan = [(job, job.entry("fedavg"), 2)]
    monkeypatch.setattr(races.run_race, "__defaults__", (killed,))
    with pytest.raises(KeyboardInterrupt):
        list(run_missing(tmp_path, plan, None, lambda line: None))
    assert [run["setting"] for run in read_record(tmp_path, job, job.entry("fedavg")).tried] == [
        *job.entry("fedavg").settings[:2]
    ]
    list(run_missing(tmp_path, plan, None, lambda line: None))
    assert made == ["7", "7", "7", "7", "0", "1"]


SUMMARY: dict[str, Any] = {"score": 0.5, "score_name": "accuracy", "higher_is_better": True, "total_bytes": 8}


def test_what_a_job_says_decides_what_is_still_valid(job: Job, tmp_path: Path) -> None:
    entry = job.entry("eden")
    run_race(tmp_path, Race(job, entry, None, 0), lambda stages: SUMMARY)
    assert [race.seed for race in races_missing(tmp_path, job, entry, 3)] == [1, 2]
    assert races_missing(tmp_path, replace(job, base={**job.base, "workers": 2}), entry, 1) == []
    other = replace(job, base={**job.base, "rounds": 3})
    assert [race.seed for race in races_missing(tmp_path, other, entry, 1)] == [0]
    tried = replace(entry, settings=("epochs=1", "epochs=2"))
    assert [race.setting for race in races_missing(tmp_path, job, tried, 1)] == ["epochs=1", "epochs=2", None]


def test_a_default_that_changes_makes_results_void(job: Job, tmp_path: Path) -> None:
    entry, path = job.entry("eden"), record_path(tmp_path, "tiny", "eden")
    run_race(tmp_path, Race(job, entry, None, 0), lambda stages: SUMMARY)
    kept = json.loads(path.read_text())
    (keys,) = kept["keys"]
    assert keys["fedavg.up.codec"] == "eden"
    assert keys["rounds"] == 2
    assert "seed" not in keys
    # A key that did not exist then had today's default.
    assert races_missing(tmp_path, job, entry, 1) == []
    path.write_text(json.dumps({**kept, "keys": [{k: v for k, v in keys.items() if k != "fedavg.local.schedule"}]}))
    assert races_missing(tmp_path, job, entry, 1) == []
    for changed in ({**keys, "fedavg.local.epochs": 5}, {**keys, "gone": 1}):
        path.write_text(json.dumps({**kept, "keys": [changed]}))
        assert [race.seed for race in races_missing(tmp_path, job, entry, 1)] == [0]
    # Results from before keys were kept are judged by the job's file alone.
    path.write_text(json.dumps({key: value for key, value in kept.items() if key != "keys"}))
    assert races_missing(tmp_path, job, entry, 1) == []


def test_a_run_that_fails_is_a_result_and_never_the_choice(job: Job, tmp_path: Path) -> None:
    entry = job.entry("fedavg")

    def fails(stages: Sequence[Settings]) -> dict[str, Any]:
        raise QuorumError("nobody answered")

    found = run_race(tmp_path, Race(job, entry, entry.settings[0], 7), fails)
    assert found["error"] == "nobody answered"
    good = {"setting": "b", "score": 0.1, "higher_is_better": True}
    assert best_setting([{**good, "setting": "a", "error": "x"}, good, {**good, "setting": "c"}]) == "b"
    lower = [{**good, "higher_is_better": False, "score": score, "setting": str(score)} for score in (3.0, 2.0, 4.0)]
    assert best_setting(lower) == "2.0"
    with pytest.raises(ConfigError, match="not all tried"):
        run_race(tmp_path, Race(job, entry, None, 0), fails)


def test_no_run_starts_that_would_exceed_the_budget(job: Job, tmp_path: Path) -> None:
    """Six seconds a run, as the file says; three where a setting is tried at half length."""
    fedavg, eden = job.entry("fedavg"), job.entry("eden")
    assert estimate(tmp_path, Race(job, eden, None, 0)) == pytest.approx(6)
    assert estimate(tmp_path, Race(job, fedavg, fedavg.settings[0], 7)) == pytest.approx(3)
    told: list[str] = []
    assert list(run_missing(tmp_path, [(job, fedavg, 2)], 2.9, told.append)) == []
    assert [line for line in told if "exceed" in line] == told != []
    run_race(tmp_path, Race(job, eden, None, 0), lambda stages: SUMMARY)
    path = record_path(tmp_path, job.name, "eden")
    kept = json.loads(path.read_text())
    kept["runs"][0]["wall"] = 40.0
    path.write_text(json.dumps(kept))
    assert estimate(tmp_path, Race(job, eden, None, 1)) == pytest.approx(40)
    assert estimate(tmp_path, Race(job, fedavg, fedavg.settings[0], 7)) == pytest.approx(20)


def test_a_second_stage_starts_from_the_network_of_the_first(job: Job) -> None:
    """Personal networks after training in one place: with a rate of 0 they are the network of the first stage."""
    first = job.resolve("fedavg:pooled=true,learning_rate=0.01", ["run.seed=0"])
    second = job.resolve("standalone:learning_rate=0,head=keep,rounds=1,evaluate=personal", ["run.seed=0"])
    central = run_job(build_problem(first.run), first).module
    summary = run_stages([first, second])
    problem: Problem = replace(build_problem(second.run), module=central)
    assert summary["score"] == run_job(problem, second).summary["score"]
    torch.testing.assert_close(summary["score_before"], summary["score"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[methods.fedavg]\nsettings = ['a=1', 'b=2', 'c=3', 'd=4', 'e=5']", "5 settings; needs 1 to 4"),
        ("[methods.fedavg]\nsettings = ['epochs=1', 'epochs=1']", "different ones"),
        ("[methods.fedavg]\nsettings = ['epoks=1']", "unknown key 'epoks'"),
        ("[methods.fedavg]\nspeed = 3", "run, settings and after only"),
        ("[methods.'../x']", "plain name"),
        ("[methods.none]", "'none'"),
        ("minutes = 0", "minutes=0"),
        ("seeds = 3\ntuning_seed = 2\n[methods.fedavg]", "tuning_seed=2: needs a seed that no run has"),
        ("what = 'nothing'", "needs at least one"),
        ("base = 3", r"base is 3; needs a table \[base\]"),
    ],
)
def test_a_job_that_cannot_be_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_jobs(tmp_path)


def test_the_page_shows_the_committed_results() -> None:
    root = Path(__file__).parents[2]
    rendering = runpy.run_path(str(root / "benchmarks" / "render_arena.py"))
    text = (root / "docs" / "arena.md").read_text()
    assert rendering["rendered_page"](text) == text, "run benchmarks/render_arena.py"


def test_every_job_of_the_arena_has_a_floor_a_ceiling_and_eight_methods() -> None:
    jobs = read_jobs(Path(__file__).parents[2] / "experiments" / "arena")
    assert {"vision", "skewed", "imagenet", "text", "language", "personal"} <= {*jobs}
    for job in jobs.values():
        kinds = [kind(label) for label in job.entries]
        assert "central" in kinds, job.name
        assert {"head-alone", "start", "standalone"} & {*kinds}, job.name
        assert kinds.count(None) >= 8, job.name
        assert job.header.seeds >= 3, job.name


def test_committed_results_have_a_gap_and_eight_methods_of_three_seeds() -> None:
    root = Path(__file__).parents[2]
    for job in read_jobs(root / "experiments" / "arena").values():
        found = standing(root / "benchmarks" / "results" / "arena", job)
        assert found.gap is not None, job.name
        complete = [row for row in found.rows if row.seeds >= 3]
        assert {"floor", "ceiling"} <= {row.role for row in complete}, job.name
        assert len([row for row in complete if row.role == "method"]) >= 8, job.name
        assert all(row.seeds >= 3 for row in found.rows if row.seeds or row.failed), job.name


def test_data_that_are_not_here_are_no_result(job: Job, tmp_path: Path) -> None:
    entry = job.entry("fedavg")

    def fails(stages: Sequence[Settings]) -> dict[str, Any]:
        raise DataError("not on this machine")

    with pytest.raises(DataError):
        run_race(tmp_path, Race(job, entry, entry.settings[0], 7), fails)
    assert [race.setting for race in races_missing(tmp_path, job, entry, 1)] == [*entry.settings, None]
