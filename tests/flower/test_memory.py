"""What a node keeps: which turn's memory is there, when it is gone, and that nothing else ever is."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from subbit.core.errors import ConfigError, FrameError
from subbit.flower import node_memory as module
from subbit.flower.deployment import node_memory
from subbit.flower.node_memory import FORGET_AFTER_SECONDS, IDLE_SECONDS, MARKER, MemoryFolderError, NodeMemory
from subbit.runtime.client_memory import NO_MEMORY

JOB, OTHER, THIRD = "a" * 32, "b" * 32, "c" * 32
MONTHS = FORGET_AFTER_SECONDS + 60
TEN_KILOBYTES = {"residual": np.zeros(2500, dtype=np.float32)}


def root(folder: Path) -> Path:
    return folder / "subbit-memory"


def jobs(folder: Path) -> list[str]:
    return sorted(path.name for path in root(folder).iterdir() if path.is_dir())


def make_old(path: Path, seconds: float) -> None:
    """A folder and all in it, as if it had been left alone for so long."""
    then = time.time() - seconds
    for entry in [*path.rglob("*"), path]:
        os.utime(entry, (then, then), follow_symlinks=False)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    memory = NodeMemory(tmp_path)
    assert memory.read(JOB, 0, NO_MEMORY) == {}
    for turn, used in ((0, NO_MEMORY), (3, 0), (7, 3)):
        assert memory.write(JOB, 0, turn, {"residual": np.full(3, turn, dtype=np.float32)}, used) == turn
    assert memory.read(JOB, 0, 3)["residual"].tolist() == [3, 3, 3]
    assert memory.read(JOB, 0, 7)["residual"].tolist() == [7, 7, 7]
    assert memory.write(JOB, 0, 8, {"residual": np.full(3, 7, dtype=np.float32)}, 7) == 7, "as before: not written"


def test_nothing_to_remember_is_no_memory(tmp_path: Path) -> None:
    assert NodeMemory(tmp_path).write(JOB, 4, 0, {}, NO_MEMORY) == NO_MEMORY
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_memory_never_changes_is_in_use_all_the_same(tmp_path: Path) -> None:
    """A fitted head is written once and used for months."""
    memory = NodeMemory(tmp_path)
    memory.write(OTHER, 0, 1, TEN_KILOBYTES, NO_MEMORY)
    make_old(root(tmp_path) / OTHER, MONTHS)
    assert memory.write(OTHER, 0, 2, TEN_KILOBYTES, 1) == 1
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path) == [JOB, OTHER]


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_what_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    memory = NodeMemory(tmp_path)
    if damage == "damaged":
        memory.write(JOB, 1, 5, TEN_KILOBYTES, NO_MEMORY)
        (kept,) = tmp_path.rglob("*.safetensors")
        kept.write_bytes(b"rubbish")
    with pytest.raises(FrameError, match="client 1") as caught:
        memory.read(JOB, 1, 5)
    assert caught.value.cause == "memory"
    assert str(tmp_path) not in str(caught.value), "the server need not know this node's paths"


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """The folder that `memory-folder` names may be anything, a home for instance."""
    for name in ("photos/summer.jpg", ".ssh/id_ed25519", "models/base.safetensors", f"{OTHER}/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("mine")
        make_old(path.parent, 2 * MONTHS)
    memory = NodeMemory(tmp_path, quota=15_000)
    for job in (JOB, THIRD):
        memory.write(job, 0, 0, TEN_KILOBYTES, NO_MEMORY)
        memory.forget(job)
    memory.forget(OTHER)
    assert sorted(path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.name != MARKER) == (
        ["mine"] * 4
    )


def test_inside_its_own_folder_only_marked_jobs_go(tmp_path: Path) -> None:
    """Not a folder of another name, not one of the right name without the marker, nothing behind a link."""
    memory = NodeMemory(tmp_path)
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("mine")
    (elsewhere / MARKER).write_bytes((root(tmp_path) / JOB / MARKER).read_bytes())
    unmarked, misnamed = root(tmp_path) / OTHER, root(tmp_path) / "notes"
    for folder in (unmarked, misnamed):
        folder.mkdir()
        (folder / "text.txt").write_text("mine")
    (misnamed / MARKER).write_bytes((root(tmp_path) / JOB / MARKER).read_bytes())
    (root(tmp_path) / ("d" * 32)).symlink_to(elsewhere)
    make_old(root(tmp_path), 2 * MONTHS)
    make_old(elsewhere, 2 * MONTHS)
    memory.write(THIRD, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    for job in ("d" * 32, OTHER):
        for use in (
            lambda job=job: memory.forget(job),
            lambda job=job: memory.write(job, 0, 1, TEN_KILOBYTES, 0),
            lambda job=job: memory.read(job, 0, 0),
        ):
            with pytest.raises(MemoryFolderError, match="nothing was touched"):
                use()
    assert jobs(tmp_path) == [OTHER, THIRD, "d" * 32, "notes"], "only the marked job of that name was forgotten"
    assert (elsewhere / "thesis.txt").read_text() == "mine"


def test_links_inside_a_job_are_not_followed(tmp_path: Path) -> None:
    memory = NodeMemory(tmp_path / "memory")
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    (tmp_path / "thesis.txt").write_text("mine")
    (root(tmp_path / "memory") / JOB / "1").symlink_to(tmp_path)
    with pytest.raises(MemoryFolderError, match="nothing was touched"):
        memory.write(JOB, 1, 0, TEN_KILOBYTES, NO_MEMORY)
    memory.forget(JOB)
    assert jobs(tmp_path / "memory") == []
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_folder_of_that_name_which_is_not_ours_is_an_error(tmp_path: Path, kind: str) -> None:
    target = root(tmp_path)
    if kind == "folder":
        target.mkdir()
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    else:
        target.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    memory = NodeMemory(tmp_path)
    for use in (lambda: memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY), lambda: memory.read(JOB, 0, 0)):
        with pytest.raises(MemoryFolderError, match=r"was not made by subbit.*nothing was touched") as caught:
            use()
        assert caught.value.cause == "folder"
    assert sorted(tmp_path.rglob("*")) == before


def test_jobs_that_nobody_touched_for_a_month_are_forgotten(tmp_path: Path) -> None:
    memory = NodeMemory(tmp_path)
    memory.write(OTHER, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    make_old(root(tmp_path) / OTHER, MONTHS)
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path) == [JOB]


@pytest.mark.parametrize("fresh", ["0/5.safetensors.tmp", "", "0"])
def test_a_job_in_which_anything_is_fresh_is_kept(tmp_path: Path, fresh: str) -> None:
    """A file that is being written, and a job folder or a client's folder that is still empty."""
    memory = NodeMemory(tmp_path)
    memory.write(OTHER, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    make_old(root(tmp_path) / OTHER, MONTHS)
    path = root(tmp_path) / OTHER / fresh
    if fresh.endswith(".tmp"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half a fi")
        make_old(root(tmp_path) / OTHER, MONTHS)
    path.mkdir(exist_ok=True) if not path.exists() else os.utime(path)
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path) == [JOB, OTHER]


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        NodeMemory(tmp_path / "new").write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    finally:
        assert os.umask(before) == 0o022, "the process keeps its own"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()} == {0o600}


def test_the_quota_takes_idle_jobs_before_it_refuses(tmp_path: Path) -> None:
    """Room for two such memories: the third write makes the oldest idle job go, a busy one stays."""
    memory = NodeMemory(tmp_path, quota=30_000)
    memory.write(OTHER, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    memory.write(THIRD, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    make_old(root(tmp_path) / OTHER, IDLE_SECONDS + 60)
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path) == [JOB, THIRD]
    assert memory.write(JOB, 0, 1, TEN_KILOBYTES, 0) == 0, "nothing has to be written"
    with pytest.raises(MemoryFolderError, match="memory-quota-mb") as caught:
        memory.write(JOB, 0, 1, {"residual": np.ones(2500, dtype=np.float32)}, 0)
    assert caught.value.cause == "quota"
    assert memory.read(JOB, 0, 0)["residual"].size == 2500, "what the server may ask for is still there"


def test_personal_networks_are_never_forgotten(tmp_path: Path) -> None:
    """They are results, and this is the only place where they are."""
    memory = NodeMemory(tmp_path, quota=30_000)
    memory.write(OTHER, 0, 0, TEN_KILOBYTES, NO_MEMORY, personal=True)
    memory.forget(OTHER)
    make_old(root(tmp_path) / OTHER, MONTHS)
    memory.write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    with pytest.raises(MemoryFolderError, match="memory-quota-mb"):
        memory.write(JOB, 1, 0, TEN_KILOBYTES, NO_MEMORY)
    assert memory.read(OTHER, 0, 0)["residual"].size == 2500


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "replace_file", fail)
    with pytest.raises(MemoryFolderError, match=os.strerror(number)) as caught:
        NodeMemory(tmp_path).write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert caught.value.cause == "disk"


def test_a_file_in_the_place_of_the_folder_is_a_failure_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MemoryFolderError) as caught:
        NodeMemory(tmp_path / "file").write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert caught.value.cause == "disk"


def test_forgetting_what_is_not_there_is_fine(tmp_path: Path) -> None:
    NodeMemory(tmp_path).forget(JOB)
    assert list(tmp_path.iterdir()) == []


def on_node(**node_config: object) -> NodeMemory:
    config = {name.replace("_", "-"): value for name, value in node_config.items()}
    return node_memory(Context(1, 1, config, RecordDict(), {}))  # type: ignore[arg-type]


def test_a_node_says_where_and_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    on_node().write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path / "home") == [JOB]
    on_node(memory_folder=str(tmp_path / "disk"), memory_quota_mb=0.02).write(JOB, 0, 0, TEN_KILOBYTES, NO_MEMORY)
    assert jobs(tmp_path / "disk") == [JOB]
    with pytest.raises(MemoryFolderError, match=r"memory-quota-mb=0\.001"):
        on_node(memory_folder=str(tmp_path / "disk"), memory_quota_mb=0.001).write(JOB, 1, 0, TEN_KILOBYTES, NO_MEMORY)


@pytest.mark.parametrize("quota", [0, -1, "much", True, float("nan"), float("inf")])
def test_a_quota_is_a_number_of_megabytes(quota: object) -> None:
    with pytest.raises(ConfigError, match="memory-quota-mb"):
        on_node(memory_quota_mb=quota)
