"""What a node keeps: which turn's memory is there, and when it is gone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from subbit.errors import FrameError
from subbit.flower.memory import FORGET_AFTER_SECONDS, NodeMemory, turn_number
from subbit.flower.records import NO_MEMORY

JOB, OTHER = "a" * 32, "b" * 32


def test_two_turns_are_kept_and_no_more(tmp_path: Path) -> None:
    memory = NodeMemory(tmp_path)
    assert memory.read(JOB, 0, NO_MEMORY) == {}
    for turn, used in ((0, NO_MEMORY), (3, 0), (7, 3)):
        memory.write(JOB, 0, turn, {"residual": np.full(3, turn, dtype=np.float32)}, used)
    assert sorted(path.stem for path in tmp_path.rglob("*.safetensors")) == ["3", "7"]
    assert memory.read(JOB, 0, 3)["residual"].tolist() == [3, 3, 3]
    assert memory.read(JOB, 0, 7)["residual"].tolist() == [7, 7, 7]


def test_an_empty_memory_is_a_memory(tmp_path: Path) -> None:
    NodeMemory(tmp_path).write(JOB, 4, 0, {}, NO_MEMORY)
    assert NodeMemory(tmp_path).read(JOB, 4, 0) == {}


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_what_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    memory = NodeMemory(tmp_path)
    if damage == "damaged":
        memory.write(JOB, 1, 5, {}, NO_MEMORY)
        (tmp_path / JOB / "1/5.safetensors").write_bytes(b"rubbish")
    with pytest.raises(FrameError, match="client 1 kept of turn 5") as caught:
        memory.read(JOB, 1, 5)
    assert caught.value.cause == "memory"


def test_jobs_that_nobody_touched_for_a_month_are_forgotten(tmp_path: Path) -> None:
    memory = NodeMemory(tmp_path)
    memory.write(OTHER, 0, 0, {}, NO_MEMORY)
    path = tmp_path / OTHER / "0/0.safetensors"
    old = path.stat().st_mtime - FORGET_AFTER_SECONDS - 60
    os.utime(path, (old, old))
    memory.write(JOB, 0, 0, {}, NO_MEMORY)
    assert [job.name for job in tmp_path.iterdir()] == [JOB]


def test_turns_are_numbered_from_the_head_phase() -> None:
    assert [turn_number("head", 0), turn_number("main", 0), turn_number("main", 9)] == [0, 1, 10]
