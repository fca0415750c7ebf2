"""What clients keep between turns: which turns are there, what a damaged file costs, what is not written twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from subbit.core.errors import FrameError
from subbit.runtime.client_memory import NO_MEMORY, ClientMemories, Memories, MemoriesInRam, turn_number


def kept(value: float) -> dict[str, np.ndarray]:
    return {"residual": np.full(3, value, dtype=np.float32)}


@pytest.fixture(params=["ram", "files"])
def memories(request: pytest.FixtureRequest, tmp_path: Path) -> Memories:
    return MemoriesInRam() if request.param == "ram" else ClientMemories(tmp_path)


def test_the_turn_that_counts_is_there_until_the_next_one_counts(memories: Memories) -> None:
    """Turn 3 was refused by the server, which asks for turn 1 again; the client's next turn is 4."""
    assert memories.read(0, NO_MEMORY) == {}
    assert memories.write(0, 1, kept(1), NO_MEMORY) == 1
    assert memories.write(0, 3, kept(3), 1) == 3
    assert memories.read(0, 1)["residual"].tolist() == [1, 1, 1]
    assert memories.write(0, 4, kept(4), 1) == 4
    assert memories.read(0, 4)["residual"].tolist() == [4, 4, 4]
    with pytest.raises(FrameError, match="client 0 kept of turn 3") as caught:
        memories.read(0, 3)
    assert caught.value.cause == "memory"


def test_nothing_to_keep_is_no_memory(memories: Memories) -> None:
    assert memories.write(0, 5, {}, NO_MEMORY) == NO_MEMORY


def test_a_client_changes_a_copy(memories: Memories) -> None:
    memories.write(0, 1, kept(1), NO_MEMORY)
    memories.read(0, 1)["more"] = np.zeros(1)
    assert memories.read(0, 1).keys() == {"residual"}


def test_files_keep_what_the_last_two_checkpoints_may_ask_for(tmp_path: Path) -> None:
    memories = ClientMemories(tmp_path)
    for turn, used in ((0, NO_MEMORY), (3, 0), (7, 3), (9, 7)):
        memories.write(0, turn, kept(turn), used)
        memories.write(1, turn, kept(turn), used)
    assert sorted(path.stem for path in (tmp_path / "0").iterdir()) == ["3", "7", "9"]


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    memories = ClientMemories(tmp_path)
    memories.write(0, 1, kept(1), NO_MEMORY)
    assert memories.write(0, 2, memories.read(0, 1), 1) == 1
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["1.safetensors"]


def test_a_flipped_bit_is_a_lost_memory(tmp_path: Path) -> None:
    memories = ClientMemories(tmp_path)
    memories.write(0, 1, kept(1), NO_MEMORY)
    path = memories.path(0, 1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FrameError, match="damaged"):
        memories.read(0, 1)


def test_turns_are_numbered_from_the_head_phase() -> None:
    assert [turn_number("head", 0), turn_number("main", 0), turn_number("main", 9)] == [0, 1, 10]
