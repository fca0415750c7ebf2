"""The ledger: sums by hand, order that does not matter, files that survive."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Literal

import pytest

from subbit.core.errors import RunFolderError
from subbit.wire import Entry, Ledger, Totals

WAYS: dict[str, list[tuple[Literal["up", "down"], int]]] = {
    "asked": [("down", 100), ("up", 5)],
    "trained": [("down", 100), ("up", 40)],
}
ENTRIES = [
    Entry("head", 0, 0, "up", "head", "dense", 400, True),
    Entry("head", 0, 1, "up", "head", "dense", 400, True),
    Entry("main", 1, 0, "down", "theta", "counts", 90, False),
    Entry("main", 1, 0, "up", "flips", "flips", 50, False),
    Entry("main", 1, 0, "up", "biases", "dense", 10, False),
    Entry("main", 1, 1, "down", "theta", "counts", 90, False),
    Entry("main", 1, 1, "up", "structure", "packed", 30, True),
    Entry("main", 2, 10, "down", "theta", "counts", 60, False),
    Entry("main", 2, 10, "up", "flips", "flips", 20, False),
]


def test_totals_by_hand() -> None:
    """Up 50 + 10 + 20 = 80 in 2 turns (two parts of one client are one turn), down 90 + 90 + 60 = 240 in 3 turns;
    one-off 400 + 400 + 30 = 830. With 1000 places: up 8 * 80 / (1000 * 2) = 0.32, down 8 * 240 / (1000 * 3) = 0.64."""
    ledger = Ledger(ENTRIES)
    assert ledger.totals == Totals(uplink_bytes=80, downlink_bytes=240, one_off_bytes=830, uploads=2, downloads=3)
    assert ledger.totals.total_bytes == sum(entry.frame_bytes for entry in ENTRIES) == 1150
    assert ledger.uplink_bpp(1000) == pytest.approx(0.32)
    assert ledger.downlink_bpp(1000) == pytest.approx(0.64)


def test_clients_that_are_only_asked_for_their_loss_have_no_turn() -> None:
    """Three are asked (100 down, 5 up each), two of them train (100 down, 40 up each): down 500 bytes and up 95 in 2
    turns. With 1000 places: up 8 * 95 / 2000 = 0.38, down 8 * 500 / 2000 = 2."""
    asked = [
        Entry("main", 0, client, way, "loss" if way == "up" else "weights", "dense", size, False)
        for client in range(3)
        for way, size in WAYS["asked"]
    ]
    trained = [
        Entry("main", 0, client, way, "weights", "dense", size, False)
        for client in range(2)
        for way, size in WAYS["trained"]
    ]
    ledger = Ledger([*asked, *trained])
    assert (ledger.totals.uploads, ledger.totals.downloads) == (2, 2)
    assert ledger.uplink_bpp(1000) == pytest.approx(0.38)
    assert ledger.downlink_bpp(1000) == pytest.approx(2)


def test_bytes_through_a_round_count_the_head_phase_first() -> None:
    """Head 800; round 1 adds 90 + 50 + 10 + 90 + 30 = 270; round 2 adds 80."""
    ledger = Ledger(ENTRIES)
    assert [ledger.bytes_through(round_number) for round_number in (0, 1, 2, 9)] == [800, 1070, 1150, 1150]
    assert ledger.truncated(1).entries == tuple(ENTRIES[:7])


def test_nothing_sent_is_zero_bits() -> None:
    assert Ledger().uplink_bpp(1000) == 0
    assert Ledger(ENTRIES).downlink_bpp(0) == 0


def test_file_does_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    Ledger(ENTRIES).write_csv(tmp_path / "straight.csv")
    shuffled = Ledger()
    for entry in Random(0).sample(ENTRIES, len(ENTRIES)):
        shuffled.add(entry)
    shuffled.write_csv(tmp_path / "shuffled.csv")
    straight = (tmp_path / "straight.csv").read_bytes()
    assert straight == (tmp_path / "shuffled.csv").read_bytes()
    assert straight.splitlines()[:2] == [
        b"phase,round_number,client,direction,part,codec,frame_bytes,one_off",
        b"head,0,0,up,head,dense,400,1",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shuffled.csv", "straight.csv"]


def test_resumed_ledger_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    """Killed in round 2 after part of it was written, resumed from the end of round 1."""
    path = tmp_path / "ledger.csv"
    Ledger(ENTRIES[:8]).write_csv(path)
    resumed = Ledger.read_csv(path).truncated(1)
    for entry in ENTRIES[7:]:
        resumed.add(entry)
    assert resumed.totals == Ledger(ENTRIES).totals
    resumed.write_csv(path)
    Ledger(ENTRIES).write_csv(tmp_path / "straight.csv")
    assert path.read_bytes() == (tmp_path / "straight.csv").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "some,other,table\n",
        "phase,round_number,client,direction,part,codec,frame_bytes,one_off\nmain,1,0,up,flips\n",
        "phase,round_number,client,direction,part,codec,frame_bytes,one_off\nmain,x,0,up,flips,flips,20,0\n",
        "phase,round_number,client,direction,part,codec,frame_bytes,one_off\nmain,1,0,sideways,flips,flips,20,0\n",
        "phase,round_number,client,direction,part,codec,frame_bytes,one_off\nmain,1,0,up,flips,flips,20,yes\n",
        "phase,round_number,client,direction,part,codec,frame_bytes,one_off\nmain,1,0,up,flips,flips,-20,0\n",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.csv"
    path.write_text(text)
    with pytest.raises(RunFolderError, match=r"ledger\.csv"):
        Ledger.read_csv(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot read"):
        Ledger.read_csv(tmp_path / "ledger.csv")
