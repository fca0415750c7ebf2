"""An offline run of Weights & Biases, read back from its files. Nothing is sent and nobody is asked to log in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subbit.tracking.wandb_tracker import is_offline
from tests.tracking.tracked_runs import STEPS, resumed, untracked, whole
from tests.tracking.wandb_files import read_run

pytest.importorskip("wandb", reason="wandb is not installed: pip install 'subbit[wandb]'")
pytestmark = pytest.mark.usefixtures("nothing_set")


@pytest.fixture
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def offline(folder: Path) -> list[dict[str, Any]]:
    return [read_run(path) for path in sorted((folder / "wandb").glob("offline-run-*"))]


def test_history_configuration_summary_and_files(tmp_path: Path) -> None:
    folder, summary = whole(tmp_path, "wandb")
    assert summary["model_sha256"] == untracked()["model_sha256"]
    (run,) = offline(tmp_path)
    assert (run["id"], run["name"], run["project"], run["exit"]) == (folder.job, "fedavg-1", "subbit", 0)
    assert run["config"]["rounds"] == 3
    assert run["config"]["fedavg.local.learning_rate"] > 0
    assert [step for step, _ in run["history"]] == STEPS
    scores = [summary["score_before"], *summary["score_by_round"]]
    assert [row["score"] for _, row in run["history"]] == pytest.approx(scores)
    assert [row["total_bytes"] for _, row in run["history"][1:]] == summary["bytes_by_round"]
    assert {"loss", "train_loss", "uplink_bytes", "downlink_bytes", "failures", "seconds"} <= run["history"][-1][
        1
    ].keys()
    for name in ("score", "seconds", "uplink_bpp", "total_bytes"):
        assert run["summary"][name] == pytest.approx(summary[name])
    assert {"summary.json", "config.toml"} <= run["files"]
    (files,) = (tmp_path / "wandb").glob("offline-run-*/files")
    for name in ("summary.json", "config.toml"):
        assert (files / name).read_text() == (folder.path / name).read_text()


def test_a_resumed_run_goes_on_in_the_same_run(tmp_path: Path) -> None:
    """Offline, each process has a folder; both have the identifier of the run."""
    folder, summary = resumed(tmp_path, "wandb")
    first, second = sorted(offline(tmp_path), key=lambda run: run["history"][0][0])
    assert first["id"] == second["id"] == folder.job
    assert (first["exit"], second["exit"]) == (1, 0)
    assert [step for run in (first, second) for step, _ in run["history"]] == STEPS
    assert second["summary"]["score"] == pytest.approx(summary["score"])


def test_a_run_of_the_users_own_goes_on(tmp_path: Path) -> None:
    import wandb

    with wandb.init(
        mode="offline", id="mine", dir=tmp_path, settings=wandb.Settings(silent=True, console="off")
    ) as mine:
        whole(tmp_path, "wandb", rounds=1)
        mine.log({"after": 1})
        assert wandb.run is mine
    assert {run["id"]: len(run["history"]) for run in offline(tmp_path)}["mine"] == 1


def test_a_mode_or_a_key_is_left_to_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_offline()
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert not is_offline()
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert not is_offline()
