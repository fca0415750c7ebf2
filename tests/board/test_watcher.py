"""What the board makes of folders: whole, growing, damaged, hostile, many."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from subbit.board import hostile_files
from subbit.board.run_course import Course
from subbit.board.run_row import Row
from subbit.board.watcher import Looker, View, run_id
from subbit.core.locks import FolderLock
from tests.board.made_runs import BEFORE, asked, make_run, replied, round_line


def row_of(view: View, name: str) -> Row:
    return view.rows[run_id(name)][1]


def course_of(looker: Looker, name: str) -> Course:
    return looker.look({run_id(name)}).courses[run_id(name)]


def test_what_a_run_is_and_how_far(tmp_path: Path) -> None:
    make_run(tmp_path, "done")
    make_run(tmp_path, "half", done=2, rounds=5)
    view = Looker(tmp_path).look(set())
    done, half = row_of(view, "done"), row_of(view, "half")
    assert (done.state, done.done, done.rounds, done.score, done.total_bytes) == ("finished", 3, 3, 0.9, 5000)
    assert (half.state, half.done, half.rounds, half.score, half.total_bytes) == ("interrupted", 2, 5, 0.54, 10_000)
    assert half.score_name == "accuracy"


def test_a_run_is_running_while_its_lock_is_held(tmp_path: Path) -> None:
    run, looker = make_run(tmp_path, "a", done=1), Looker(tmp_path)
    lock = FolderLock(run, "wait")
    assert row_of(looker.look(set()), "a").state == "running"
    lock.release()
    assert row_of(looker.look(set()), "a").state == "interrupted"
    (run / "running.json").write_text("{}")  # As a process leaves it that is killed.
    assert row_of(looker.look(set()), "a").state == "interrupted"
    lock = FolderLock(run, "wait")
    assert row_of(looker.look(set()), "a").state == "running"
    lock.release()


def test_a_free_lock_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is asked for, a run that starts could not have it."""
    from subbit.board import watcher

    make_run(tmp_path, "killed", done=1)
    (tmp_path / "killed" / "running.json").write_text("{}")
    count, usual = [0], watcher.is_locked

    def counted(folder: int) -> bool:
        count[0] += 1
        return usual(folder)

    monkeypatch.setattr(watcher, "is_locked", counted)
    looker = Looker(tmp_path)
    for _ in range(5):
        assert row_of(looker.look(set()), "killed").state == "interrupted"
    assert count == [1]


def test_why_a_run_stopped(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", done=1)
    stopped = json.dumps({"event": "stopped", "at": 1.0, "error": "round 1: 1 of 4 clients answered"}) + "\n"
    (run / "live.jsonl").write_text(asked(1, [0, 1]) + replied(1, cause="died", message="gone") + stopped)
    looker = Looker(tmp_path)
    found = row_of(looker.look(set()), "a")
    assert (found.state, found.problem) == ("stopped", "round 1: 1 of 4 clients answered")
    live = course_of(looker, "a").live
    assert live is not None
    assert live["failures"] == [{"client": 1, "cause": "died", "message": "gone"}]


def test_a_curve_grows_by_what_is_new(tmp_path: Path) -> None:
    run, looker = make_run(tmp_path, "a", done=1, rounds=9), Looker(tmp_path)
    first = course_of(looker, "a")
    assert (first.before, [point["score"] for point in first.points]) == (0.1, [0.5])
    half = round_line(1)
    with (run / "events.jsonl").open("a") as file:
        file.write(half[:50])
        file.flush()
        same = course_of(looker, "a")
        assert (same.version, len(same.points), same.damaged) == (first.version, 1, 0)
        file.write(half[50:] + "{ this is no JSON\n" + round_line(2, score=float("nan")))
    later = course_of(looker, "a")
    assert (later.generation, later.damaged) == (first.generation, 1)
    assert [point["score"] for point in later.points] == [0.5, 0.54, None]


def test_a_file_that_was_cut_off_or_replaced_is_read_again(tmp_path: Path) -> None:
    run, looker = make_run(tmp_path, "a", done=4, rounds=9), Looker(tmp_path)
    before = course_of(looker, "a")
    (run / "events.jsonl").write_text(BEFORE + round_line(0))
    cut = course_of(looker, "a")
    assert cut.generation > before.generation
    assert len(cut.points) == 1
    (run / "events.jsonl").write_text(BEFORE + "".join(round_line(each, score=0.2) for each in range(6)))
    assert [point["score"] for point in course_of(looker, "a").points] == [0.2] * 6


def test_clients_as_they_answer(tmp_path: Path) -> None:
    run, looker = make_run(tmp_path, "a", done=1, rounds=9), Looker(tmp_path)
    live = run / "live.jsonl"
    live.write_text(asked(1, [0, 2, 3]) + replied(2))
    found = course_of(looker, "a").live
    assert found is not None
    assert (found["round"], found["asked"], found["arrived"], found["over"]) == (1, 3, 1, False)
    assert [each.get("bytes") for each in found["clients"]] == [None, 1000, None]
    live.write_text(live.read_text() + replied(0, cause="died", message="its process died"))
    found = course_of(looker, "a").live
    assert found is not None
    assert found["failures"] == [{"client": 0, "cause": "died", "message": "its process died"}]
    # The server refuses what client 2 sent: that comes with the end of the round.
    refused = [{"client": 2, "cause": "value", "message": "not finite"}]
    with (run / "events.jsonl").open("a") as file:
        file.write(round_line(1, failures=refused))
    found = course_of(looker, "a").live
    assert found is not None
    assert found["over"]
    assert [each.get("cause") for each in found["clients"]] == ["died", "value", None]
    live.unlink()
    live.write_text(asked(2, [1], at=2.0))
    found = course_of(looker, "a").live
    assert found is not None
    assert (found["round"], found["asked"], found["failures"]) == (2, 1, [])


DAMAGE = {
    "nothing": b"",
    "half": b'{"method": "fed',
    "binary": bytes(range(256)),
    "a list": b"[1, 2]",
    "deep": b"[" * 100_000,
    "other types": json.dumps({"method": [1], "rounds": "x", "score": {"a": 1}, "clients": -1}).encode(),
    "numbers that JSON has not": b'{"score": NaN, "rounds": Infinity, "total_bytes": 1' + b"0" * 400 + b"}",
    "long": b'"' + b"x" * (1 << 24),
}


@pytest.mark.parametrize("name", ["summary.json", "config.toml", "events.jsonl", "live.jsonl", "running.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_ordinary(tmp_path: Path, name: str, damage: str) -> None:
    run = make_run(tmp_path, "a", done=3 if name == "summary.json" else 2)
    (run / name).write_bytes(DAMAGE[damage] + b"\n")
    looker = Looker(tmp_path)
    view = looker.look({run_id("a")})
    found = row_of(view, "a")
    json.dumps([vars(found), view.courses[run_id("a")].points, view.courses[run_id("a")].live], allow_nan=False)
    assert found.name == "a"
    if name == "summary.json" and damage in ("half", "deep", "long"):
        assert found.problem == "summary.json cannot be read"
        assert found.done == 3


def test_links_pipes_and_folders_in_place_of_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    make_run(secret, "hidden")
    runs = tmp_path / "runs"
    run = make_run(runs, "a", done=2)
    (runs / "link").symlink_to(secret / "hidden")
    (runs / "up").symlink_to(tmp_path)
    (run / "summary.json").symlink_to(secret / "hidden" / "summary.json")
    os.mkfifo(run / "live.jsonl")
    (run / "events.jsonl").unlink()
    (run / "events.jsonl").mkdir()
    (runs / "a file").write_text("")
    (runs / "no run").mkdir()
    (runs / ".a.new").mkdir()
    view = Looker(runs).look({run_id("a"), run_id("link")})
    assert [row.name for _, row in view.rows.values()] == ["a"]
    assert (row_of(view, "a").state, row_of(view, "a").score) == ("interrupted", None)
    assert view.courses[run_id("a")].points == []


def test_odd_names(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>".replace("/", ":"), "q'uo\"te", "new\nline", "%7B..", os.fsdecode(b"\xff\xfe")]
    for name in names:
        make_run(tmp_path, name)
    shown = {row.name for _, row in Looker(tmp_path).look(set()).rows.values()}
    assert shown == {*names[:4], "\ufffd\ufffd"}


def test_folders_come_and_go(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    looker = Looker(runs)
    assert (looker.look(set()).there, looker.look(set()).rows) == (False, {})
    make_run(runs, "a")
    assert looker.look(set()).there
    assert course_of(looker, "a").points
    shutil.rmtree(runs / "a")
    view = looker.look({run_id("a")})
    assert (view.rows, view.courses) == ({}, {})


def test_a_thousand_runs(tmp_path: Path) -> None:
    """Half of them finished; the others long, since only their ends matter for the list."""
    for number in range(1000):
        done = 100 if number % 2 else 80
        make_run(tmp_path, f"run-{number}", done=done, rounds=100)
    looker = Looker(tmp_path)
    began = time.process_time()  # Other tests run beside this one.
    assert len(looker.look(set()).rows) == 1000
    first = time.process_time() - began
    later = []
    for number in range(3):
        with (tmp_path / "run-0" / "events.jsonl").open("a") as file:
            file.write(round_line(80 + number))
        began = time.process_time()
        view = looker.look({run_id("run-0")})
        later.append(time.process_time() - began)
        assert row_of(view, "run-0").done == 81 + number
        assert [row.name for look, row in view.rows.values() if look == view.look] == ["run-0"]
    print(f"first {first:.2f} s, later {min(later):.3f} s")
    assert first < 2
    assert min(later) < 0.2


@pytest.mark.parametrize("piece", [1, 7, 300, 1 << 16])
def test_lines_from_the_end_whatever_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(hostile_files, "PIECE", piece)
    (tmp_path / "lines").write_text(
        "".join(f'{{"n": {number}}}\n' for number in range(5)) + 'damaged\n{"n": 5}\n{"n": 6'
    )
    with hostile_files.opened_folder(tmp_path) as folder:
        assert [each["n"] for each in hostile_files.records_from_end(folder, "lines")] == [5, 4, 3, 2, 1, 0]
        growing = hostile_files.GrowingFile("lines")
        records, fresh = growing.read(folder)
        assert ([each["n"] for each in records], fresh, growing.damaged) == ([0, 1, 2, 3, 4, 5], True, 1)
        with (tmp_path / "lines").open("a") as file:
            file.write("}\n")
        assert growing.read(folder) == ([{"n": 6}], False)
