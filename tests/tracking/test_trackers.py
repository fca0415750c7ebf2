"""Trackers of one's own: what they are told, what happens when they fail, and what a resumed run tells them."""

from __future__ import annotations

import dataclasses
import json
import logging
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subbit import fine_tune, register
from subbit.config.resolve import Settings, resolve, write_toml
from subbit.core.errors import ConfigError, PluginError
from subbit.flower.announcement import configuration_digest
from subbit.flower.server import continue_or_create
from subbit.runtime.event_numbers import metrics_of, numbers_of
from subbit.runtime.events import Before, Event, HeadRound, MainRound
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import Progress, run_job
from subbit.runtime.tracked import FILE
from subbit.tracking.tracker import TrackedRun
from tests.problems import digits_problem, mlp, settings

ME = f"{__name__}:Diary"
WRITTEN: list[Any] = []
"""By all diaries of a test, in order."""


class Diary:
    """Writes down what it is told; `fails` says when it raises."""

    fails = ""

    def __init__(self, run: TrackedRun) -> None:
        self._write("start", run)

    def event(self, event: Event) -> None:
        self._write("event", event)

    def finish(self, summary: dict[str, Any]) -> None:
        self._write("finish", summary)

    def stop(self) -> None:
        self._write("stop", None)

    def _write(self, what: str, told: Any) -> None:
        WRITTEN.append((what, told))
        if self.fails == what:
            raise OSError("the pencil broke")


class Vandal(Diary):
    """Changes whatever it gets."""

    def event(self, event: Event) -> None:
        if not isinstance(event, HeadRound):
            (event.scores or {}).clear()

    def finish(self, summary: dict[str, Any]) -> None:
        summary.clear()


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    WRITTEN.clear()


def told(what: str) -> list[Any]:
    return [entry for kind, entry in WRITTEN if kind == what]


def rounds_told() -> list[int]:
    return [event.round for event in told("event") if isinstance(event, MainRound)]


def job(folder: Path, **values: Any) -> tuple[Settings, RunFolder]:
    chosen = settings(method="fedavg", rounds=3, folder=str(folder), track=ME, **values)
    return chosen, RunFolder.create(chosen, "")


def stop_after(rounds: int) -> Any:
    def report(progress: Progress) -> None:
        if progress.round_number + 1 == rounds:
            raise KeyboardInterrupt

    return report


def interrupted(folder: Path, rounds: int) -> RunFolder:
    chosen, made = job(folder)
    with pytest.raises(KeyboardInterrupt):
        run_job(digits_problem(), chosen, made, report=stop_after(rounds))
    return RunFolder.open(made.path)


def test_a_tracker_is_told_of_the_whole_run(tmp_path: Path) -> None:
    chosen, folder = job(tmp_path)
    summary = run_job(digits_problem(), chosen, folder).summary
    assert [kind for kind, _ in WRITTEN] == ["start", *["event"] * 4, "finish"]
    (run,) = told("start")
    assert (run.name, run.job, run.folder, run.next_step) == ("fedavg-1", folder.job, folder.path, 0)
    assert run.config_text == (folder.path / "config.toml").read_text()
    assert run.config["rounds"] == 3
    assert run.config["fedavg.local.batch_size"] == 64
    assert "track" not in run.config
    assert told("event") == folder.read_events()
    assert told("finish") == [summary]


def test_the_head_phase_is_told_once_with_its_numbers(tmp_path: Path) -> None:
    chosen = resolve({**JOB_WITH_HEAD, "folder": str(tmp_path), "track": ME})
    from subbit.runtime.problem import build_problem

    run_job(build_problem(chosen.run), chosen, RunFolder.create(chosen, ""))
    head, before, first = told("event")
    assert (type(head), type(before), type(first)) == (HeadRound, Before, MainRound)
    assert metrics_of(head).keys() == {"head_seconds", "head_failures"}
    assert metrics_of(before) == {"score": before.score, **before.scores}


JOB_WITH_HEAD = {
    "method": "fedavg", "model": "mlp", "head": "probe", "rounds": 1, "clients": 2, "limit": 60, "test_limit": 20,
}  # fmt: skip


def test_metrics_have_score_loss_bytes_failures_and_seconds(tmp_path: Path) -> None:
    chosen, folder = job(tmp_path)
    summary = run_job(digits_problem(), chosen, folder).summary
    found = metrics_of(told("event")[-1])
    assert {"score", "accuracy", "loss", "train_loss", "failures", "seconds", "uplink_bpp"} <= found.keys()
    for name in ("uplink_bytes", "downlink_bytes", "total_bytes", "score"):
        assert found[name] == summary[name]
    assert all(type(value) is float for value in found.values())
    numbers = numbers_of(summary)
    assert numbers["scores.loss"] == summary["scores"]["loss"]
    assert "pretrained" not in numbers


@pytest.mark.parametrize("moment", ["start", "event", "finish"])
def test_one_that_fails_warns_once_and_changes_nothing(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Diary, "fails", moment)
    chosen, folder = job(tmp_path)
    with caplog.at_level(logging.WARNING, "subbit"):
        summary = run_job(digits_problem(), chosen, folder).summary
    (warning,) = caplog.messages
    assert warning == f"track={ME}: OSError: the pencil broke; the run goes on without it"
    without = run_job(digits_problem(), settings(method="fedavg", rounds=3)).summary
    assert summary["model_sha256"] == without["model_sha256"]
    assert len(told(moment)) == 1


def test_one_that_changes_what_it_is_told_does_not_change_the_run(tmp_path: Path) -> None:
    chosen = settings(method="fedavg", folder=str(tmp_path), track=f"{__name__}:Vandal")
    result = run_job(digits_problem(), chosen, RunFolder.create(chosen, ""))
    assert result.summary == run_job_again(result.summary)
    assert result.history[-1]["accuracy"] == result.score


def run_job_again(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary of the same job without a tracker, with the times of the first."""
    again = run_job(digits_problem(), settings(method="fedavg")).summary
    return {**again, **{key: summary[key] for key in ("name", "seconds", "seconds_this_process")}}


def test_a_resumed_run_tells_the_rest(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    assert rounds_told() == [0, 1]
    assert WRITTEN[-1][0] == "stop"
    run_job(digits_problem(), folder.settings, folder, resume=True)
    assert rounds_told() == [0, 1, 2]
    first, second = told("start")
    assert (second.job, second.next_step) == (first.job, 3)
    assert len(told("finish")) == 1


def test_what_was_saved_and_not_told_is_told_later(tmp_path: Path) -> None:
    """As when the process is killed between the two."""
    folder = interrupted(tmp_path, 2)
    (folder.path / FILE).write_text(json.dumps({ME: {"next": 1, "finished": False}}))
    WRITTEN.clear()
    run_job(digits_problem(), folder.settings, folder, resume=True)
    assert rounds_told() == [0, 1, 2]


def test_a_round_that_is_done_again_is_not_told_again(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    (folder.path / "checkpoint" / "2.safetensors").write_bytes(b"damaged")
    run_job(digits_problem(), folder.settings, folder, resume=True)
    assert rounds_told() == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}', '{"x": {"next": "many"}}'])
def test_a_damaged_record_is_one_warning(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = interrupted(tmp_path, 2)
    (folder.path / FILE).write_text(text)
    WRITTEN.clear()
    with caplog.at_level(logging.WARNING, "subbit"):
        run_job(digits_problem(), folder.settings, folder, resume=True)
    assert [message for message in caplog.messages if FILE in message] == caplog.messages[:1]
    assert rounds_told() == [0, 1, 2]


def test_a_finished_run_is_not_told_again(tmp_path: Path) -> None:
    data = [digits_problem().train.select(np.arange(start, start + 3)) for start in (0, 3)]
    call = {"method": "fedavg", "rounds": 1, "classes": 10, "folder": tmp_path / "mine", "resume": True}
    fine_tune(mlp(), data, digits_problem().test, track=ME, **call)
    told_first = len(WRITTEN)
    fine_tune(mlp(), data, digits_problem().test, track=ME, **call)
    assert len(WRITTEN) == told_first


def test_fine_tune_goes_on_with_another_tracker(tmp_path: Path) -> None:
    data = [digits_problem().train.select(np.arange(start, start + 3)) for start in (0, 3)]
    call: dict[str, Any] = {"method": "fedavg", "rounds": 2, "classes": 10, "folder": tmp_path / "mine"}
    with pytest.raises(KeyboardInterrupt):
        fine_tune(mlp(), data, digits_problem().test, report=stop_after(1), **call)
    fine_tune(mlp(), data, digits_problem().test, track=[ME], resume=True, **call)
    assert rounds_told() == [0, 1]
    assert tomllib.loads((tmp_path / "mine" / "config.toml").read_text()).get("track") is None


def test_another_tracker_is_not_another_job_for_flower(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    chosen = folder.settings
    other = dataclasses.replace(chosen, run=dataclasses.replace(chosen.run, track="tensorboard"))
    assert configuration_digest(write_toml(chosen)) == configuration_digest(write_toml(other))
    found, resume = continue_or_create(other, "")
    assert (found.path, resume) == (folder.path, True)
    changed = dataclasses.replace(other, run=dataclasses.replace(other.run, seed=3))
    assert continue_or_create(changed, "")[1] is False


@pytest.mark.parametrize("value", ["tensorboard,mlflow", " tensorboard , mlflow", ["tensorboard", "mlflow"]])
def test_several_are_a_list_or_words_with_commas(value: Any) -> None:
    track = resolve({"track": value}).run.track
    assert track is not None
    assert [name.strip() for name in track.split(",")] == ["tensorboard", "mlflow"]
    assert resolve(tomllib.loads(write_toml(resolve({"track": value})))).run.track == track


@pytest.mark.parametrize("value", ["none", "", []])
def test_none_is_none(value: Any) -> None:
    assert not resolve({"track": value}).run.track


def test_mistakes_are_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="track='tensorbord': did you mean 'tensorboard'"):
        resolve({"track": "mlflow,tensorbord"})
    with pytest.raises(ConfigError, match="track=3"):
        resolve({"track": 3})
    for name, message in [(f"{__name__}:Dairy", "did you mean 'Diary'"), ("nowhere:Diary", "no module 'nowhere'")]:
        with pytest.raises(PluginError, match=message):
            run_job(digits_problem(), settings(method="fedavg", track=name))


def test_a_tracker_that_is_not_installed_is_refused_and_left_out_on_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = interrupted(tmp_path, 2)
    monkeypatch.setattr(Diary, "needs", "a_package_of_nobody", raising=False)
    with pytest.raises(ConfigError, match="a_package_of_nobody is not installed: pip install"):
        run_job(digits_problem(), settings(method="fedavg", track=ME))
    WRITTEN.clear()
    with caplog.at_level(logging.WARNING, "subbit"):
        run_job(digits_problem(), folder.settings, folder, resume=True)
    assert "the run goes on without trackers" in caplog.messages[0]
    assert not WRITTEN


@pytest.mark.usefixtures("forgetting")
def test_a_registered_one_is_known_by_its_name(tmp_path: Path) -> None:
    register("tracker", "diary")(type("Own", (Diary,), {}))
    chosen = settings(method="fedavg", folder=str(tmp_path), track="diary")
    run_job(digits_problem(), chosen, RunFolder.create(chosen, ""))
    assert rounds_told() == [0, 1]


def test_one_without_the_methods_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    run_job(digits_problem(), settings(method="fedavg", track="builtins:repr"))
    assert "str has no event()" in caplog.text
