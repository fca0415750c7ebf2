"""The board as a process, runs as processes, and what comes through the stream."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from subbit.board.watcher import run_id
from tests.board.made_runs import make_run

JOB = ["model=mlp", "head=keep", "clients=4", "limit=200", "test_limit=60", "batch_size=4", "method=fedavg"]
Event = tuple[str, dict[str, Any]]


@contextmanager
def board(folder: Path, *words: str) -> Iterator[str]:
    """The address of a board of this folder's `runs`."""
    command = [sys.executable, "-m", "subbit", "board", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            reachable(address)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, ""), said


def reachable(address: str) -> None:
    """Wait until the server answers: before that it does not hear Ctrl-C either."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            httpx.get(address, timeout=5)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return


@contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "subbit", "run", *JOB, *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def stream(address: str, *runs: str) -> Iterator[Iterator[Event]]:
    asked = {"params": [("run", run_id(run)) for run in runs], "timeout": 60}
    with httpx.stream("GET", f"{address}api/stream", **asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def until(events: Iterator[Event], found: Callable[[str, dict[str, Any]], bool], patience: float = 100) -> list[Event]:
    """The events up to the first that is wanted."""
    heard, end = [], time.monotonic() + patience
    for event in events:
        heard.append(event)
        if found(*event):
            return heard
        assert time.monotonic() < end, heard[-3:]
    raise AssertionError("the stream ended")


def in_state(state: str) -> Callable[[str, dict[str, Any]], bool]:
    return lambda name, data: name == "rows" and any(row["state"] == state for row in data["rows"])


def test_a_real_run_followed_from_outside(tmp_path: Path) -> None:
    with board(tmp_path) as address, stream(address, "live") as events, started(tmp_path, "name=live", "rounds=200"):
        heard = until(events, in_state("finished"))
    assert heard[0] == ("hello", {"folder": str(tmp_path / "runs")})
    assert heard[1] == ("rows", {"rows": [], "gone": [], "there": False}), "the folder was not there yet"
    states = [data["rows"][0]["state"] for name, data in heard if name == "rows" and data["rows"]]
    assert states[0] == "running"
    points: list[Any] = []
    lengths, partial = set(), 0
    for name, data in heard:
        if name == "course":
            points[data["start"] :] = data["points"]
            lengths.add(len(points))
            live = data["live"]
            partial += live is not None and 0 < live["arrived"] < live["asked"]
    assert len(lengths) > 2, "the curve grew"
    assert partial, "clients were seen to answer one after the other"
    assert [point["round"] for point in points] == list(range(len(points)))
    row = heard[-1][1]["rows"][0]
    summary = json.loads((tmp_path / "runs" / "live" / "summary.json").read_text())
    assert (row["score"], row["total_bytes"], row["done"]) == (summary["score"], summary["total_bytes"], 200)


def test_a_killed_run_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with board(tmp_path) as address, stream(address, "killed") as events:
        with started(tmp_path, "name=killed", "rounds=500") as process:
            until(events, lambda name, data: name == "course" and len(data["points"]) > 0)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert (tmp_path / "runs" / "killed" / "running.json").exists()
            until(events, in_state("interrupted"))
        row = httpx.get(f"{address}api/runs").json()["runs"][0]
        assert (row["state"], row["rounds"]) == ("interrupted", 500)


def test_many_tabs_read_files_once_and_a_closed_one_is_forgotten(tmp_path: Path) -> None:
    """In this process, where reading can be counted."""
    import asyncio

    from subbit.board.watcher import PAUSE
    from subbit.board.web import _stream, board_app

    make_run(tmp_path, "a")
    watcher = board_app(tmp_path).state.watcher

    async def tab() -> None:
        async for _ in _stream(watcher, tmp_path, {run_id("a")}, lambda: False):
            pass

    async def watched() -> tuple[int, int, int, int]:
        watching = asyncio.create_task(watcher.watch())
        tabs = [asyncio.create_task(tab()) for _ in range(40)]
        await asyncio.sleep(4.5 * PAUSE)
        looks, pages = watcher.looks, watcher.pages
        for each in tabs:
            each.cancel()
        await asyncio.gather(*tabs, return_exceptions=True)
        await asyncio.sleep(1.5 * PAUSE)
        idle = watcher.looks
        await asyncio.sleep(3 * PAUSE)
        watching.cancel()
        return looks, pages, watcher.pages, watcher.looks - idle

    looks, pages, left, more = asyncio.run(watched())
    assert (pages, left) == (40, 0)
    assert looks <= 8
    assert more == 0, "nobody looks, nothing is read"


def test_a_closed_connection_ends_its_stream(tmp_path: Path) -> None:
    """From outside: no time of the process is spent any more."""
    make_run(tmp_path / "runs", "a")
    with board(tmp_path) as address:
        with stream(address, "a") as events:
            until(events, lambda name, data: name == "course")
        port = int(address.rstrip("/").rpartition(":")[2])
        end = time.monotonic() + 10
        while _connections(port) and time.monotonic() < end:
            time.sleep(0.1)
        assert not _connections(port)


def _connections(port: int) -> int:
    """Established connections to this port of the machine."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(int(each[1].rpartition(":")[2], 16) == port and each[3] == "01" for each in fields)


def test_it_is_there_at_once_and_without_torch(tmp_path: Path) -> None:
    with board(tmp_path) as address:
        assert httpx.get(address).status_code == 200
        (process,) = [path for path in Path("/proc").glob("[0-9]*") if _runs_in(path, tmp_path)]
        maps = (process / "maps").read_text()
    assert "libpython" in maps or "python" in maps
    assert "libtorch" not in maps


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").resolve() == folder
    except OSError:
        return False


def test_ports(tmp_path: Path) -> None:
    """Taken and asked for: an error. Taken and not asked for: the next one."""
    with board(tmp_path) as first, board(tmp_path) as second:
        assert first != second
        taken = first.rstrip("/").rpartition(":")[2]
        command = [sys.executable, "-m", "subbit", "board", "--port", taken]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "leave it out for the next" in done.stderr
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with board(tmp_path, "--port", str(port)) as address:
        assert address == f"http://127.0.0.1:{port}/"


def test_it_is_bound_to_this_machine_alone(tmp_path: Path) -> None:
    with board(tmp_path) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [each[1] for each in lines if each[3] == "0A" and int(each[1].rpartition(":")[2], 16) == port]
    assert listening == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize(
    ("word", "said"), [("nowhere", "does not exist"), ("a-file", "no folder"), ("runs/a", "is a single run")]
)
def test_a_folder_that_is_none(tmp_path: Path, word: str, said: str) -> None:
    make_run(tmp_path / "runs", "a")
    (tmp_path / "a-file").write_text("")
    command = [sys.executable, "-m", "subbit", "board", word]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)
    assert said in done.stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['subbit', 'board'];"
        "from subbit.cli.entry import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert 'pip install "subbit[board]"' in done.stderr
