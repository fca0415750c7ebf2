"""The event files of a run, read back by TensorBoard itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from subbit.core.errors import ConfigError
from subbit.runtime.run import run_job
from tests.problems import digits_problem, settings
from tests.tracking.tracked_runs import STEPS, resumed, untracked, whole

pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'subbit[tensorboard]'")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return accumulator


def curve(found: Any, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in found.Scalars(name)]


def test_curves_summary_and_configuration(tmp_path: Path) -> None:
    folder, summary = whole(tmp_path, "tensorboard")
    assert summary["model_sha256"] == untracked()["model_sha256"]
    found = read(folder.path)
    scores = [summary["score_before"], *summary["score_by_round"]]
    assert curve(found, "score") == [(step, pytest.approx(score)) for step, score in zip(STEPS, scores, strict=True)]
    for name in ("loss", "train_loss", "uplink_bytes", "downlink_bytes", "failures", "seconds"):
        assert curve(found, name)
    assert [value for _, value in curve(found, "total_bytes")] == summary["bytes_by_round"]
    assert curve(found, "summary/score") == [(STEPS[-1], pytest.approx(summary["score"]))]
    (text,) = found.Tensors("config.toml/text_summary")
    assert b'method = "fedavg"' in text.tensor_proto.string_val[0]
    assert {"_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"} <= {
        *found.summary_metadata
    }


def test_a_resumed_run_has_every_round_once(tmp_path: Path) -> None:
    folder, summary = resumed(tmp_path, "tensorboard")
    assert len(list((folder.path / "tensorboard").iterdir())) == 2
    assert [step for step, _ in curve(read(folder.path), "score")] == STEPS
    assert [value for _, value in curve(read(folder.path), "total_bytes")] == summary["bytes_by_round"]


def test_what_was_told_and_not_recorded_is_replaced(tmp_path: Path) -> None:
    """As when the process is killed in between: the record of what was told is older than the event file."""
    folder, _ = whole(tmp_path, "tensorboard")
    (folder.path / "tracked.json").unlink()
    (folder.path / "summary.json").unlink()
    run_job(digits_problem(), folder.settings, folder, resume=True)
    assert [step for step, _ in curve(read(folder.path), "score")] == STEPS


def test_it_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="track=tensorboard writes into the run folder"):
        run_job(digits_problem(), settings(method="fedavg", track="tensorboard"))


@pytest.mark.skipif(os.name != "posix", reason="a folder in the way")
def test_a_file_in_the_way_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from subbit.runtime.folder import RunFolder

    chosen = settings(method="fedavg", folder=str(tmp_path), track="tensorboard")
    folder = RunFolder.create(chosen, "")
    (folder.path / "tensorboard").write_text("mine")
    run_job(digits_problem(), chosen, folder)
    assert caplog.text.count("the run goes on without it") == 1
    assert (folder.path / "tensorboard").read_text() == "mine"
