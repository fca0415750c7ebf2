"""A run in MLflow's own store, an SQLite file in a temporary folder, read back by its client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from subbit.runtime.run import run_job
from tests.problems import digits_problem, settings
from tests.tracking.tracked_runs import STEPS, resumed, untracked, whole

pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'subbit[mlflow]'")
pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.delenv(name, raising=False)


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient()


def runs(experiment: str = "subbit") -> list[Any]:
    found = client().get_experiment_by_name(experiment)
    return list(client().search_runs([found.experiment_id], order_by=["attributes.start_time ASC"]))


def curve(run: Any, name: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in client().get_metric_history(run.info.run_id, name))


def test_metrics_parameters_summary_and_files(tmp_path: Path) -> None:
    folder, summary = whole(tmp_path, "mlflow")
    assert summary["model_sha256"] == untracked()["model_sha256"]
    (run,) = runs()
    assert (run.info.run_name, run.info.status) == ("fedavg-1", "FINISHED")
    assert run.data.tags["subbit.job"] == folder.job
    assert run.data.params["rounds"] == "3"
    assert run.data.params["fedavg.local.learning_rate"]
    scores = [summary["score_before"], *summary["score_by_round"]]
    assert curve(run, "score") == list(zip(STEPS, scores, strict=True))
    assert curve(run, "total_bytes") == list(zip(STEPS[1:], summary["bytes_by_round"], strict=True))
    for name in ("loss", "train_loss", "uplink_bytes", "downlink_bytes", "failures", "seconds"):
        assert curve(run, name)
    assert run.data.metrics["summary/uplink_bpp"] == summary["uplink_bpp"]
    for name in ("summary.json", "config.toml"):
        assert Path(client().download_artifacts(run.info.run_id, name)).read_text() == (folder.path / name).read_text()


def test_a_resumed_run_goes_on_in_the_same_run(tmp_path: Path) -> None:
    _, summary = resumed(tmp_path, "mlflow")
    (run,) = runs()
    assert run.info.status == "FINISHED"
    assert [step for step, _ in curve(run, "score")] == STEPS
    assert curve(run, "total_bytes") == list(zip(STEPS[1:], summary["bytes_by_round"], strict=True))


def test_a_run_that_fails_is_not_left_running() -> None:
    def fail(progress: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_job(digits_problem(), settings(method="fedavg", track="mlflow"), report=fail)
    (run,) = runs()
    assert run.info.status == "KILLED"
    assert [step for step, _ in curve(run, "score")] == [0, 1]


def test_the_experiment_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    whole(tmp_path, "mlflow", rounds=1)
    whole(tmp_path, "mlflow", rounds=1, seed=1)
    assert [run.data.params["seed"] for run in runs("mine")] == ["0", "1"]


def test_a_server_that_is_not_there_costs_seconds_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    started = time.monotonic()
    _, summary = whole(tmp_path, "mlflow", rounds=1)
    assert time.monotonic() - started < 60
    assert "track=mlflow: " in caplog.text
    assert summary["model_sha256"] == untracked(rounds=1)["model_sha256"]
