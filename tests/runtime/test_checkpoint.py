"""Checkpoints: what goes in comes out, and what is not one is refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from subbit.core.errors import RunFolderError
from subbit.runtime.checkpoint import read_checkpoint, write_checkpoint
from subbit.runtime.folder import RunFolder
from subbit.runtime.round import ServerState
from tests.problems import settings


def state() -> ServerState:
    return ServerState(
        phase="main",
        next_round=3,
        method={"counts": np.arange(5, dtype=np.uint16), "total": 7, "rate": 0.25},
        head=np.array([1.5, -2.0], dtype=np.float32),
        kept={4: 3, 11: 2},
        chosen={4: 2},
    )


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.safetensors"
    write_checkpoint(path, state(), "config")
    found = read_checkpoint(path, "config")
    assert (found.phase, found.next_round) == ("main", 3)
    assert found.method["total"] == 7
    assert found.method["rate"] == 0.25
    assert np.array_equal(found.method["counts"], state().method["counts"])
    assert found.head is not None
    assert np.array_equal(found.head, [1.5, -2.0])
    assert found.kept == {4: 3, 11: 2}
    assert found.chosen == {4: 2}
    assert not list(path.parent.glob("*.tmp"))


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "state", state(), "seed = 1")
    with pytest.raises(RunFolderError, match=r"another config\.toml"):
        read_checkpoint(tmp_path / "state", "seed = 2")


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff" * 100])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_checkpoint(tmp_path / "state", "config")


def test_a_folder_of_the_same_name_is_moved_aside_and_never_deleted(tmp_path: Path) -> None:
    chosen = settings(folder=str(tmp_path), name="a")
    first = RunFolder.create(chosen, "first")
    (first.path / "keep.txt").write_text("precious")
    first.release()
    second = RunFolder.create(chosen, "second")
    assert (second.path / "split.txt").read_text() == "second\n"
    assert (tmp_path / "a.1" / "keep.txt").read_text() == "precious"
    second.release()
    RunFolder.create(chosen, "third")
    assert (tmp_path / "a.2" / "split.txt").read_text() == "second\n"


def test_opening_what_is_not_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no config\.toml"):
        RunFolder.open(tmp_path)
    folder = RunFolder.create(settings(folder=str(tmp_path), name="a"), "")
    with pytest.raises(RunFolderError, match="subbit resume"):
        folder.read_summary()
    with pytest.raises(RunFolderError, match="no checkpoint yet"):
        folder.read_state()
