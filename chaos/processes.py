"""Processes to be disturbed: started in their own session, monitored, and ended without leaving anything behind.

Importing torch takes seconds. So the harness imports everything once, never computes anything itself, and forks: the
child is `python -m subbit WORDS` after its imports. Sometimes it is a real process, from the start.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import io
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PIPE_BYTES = 1 << 20
POLL_SECONDS = 0.005
GRACE_SECONDS = 10.0
"""Worker processes exit by themselves when their parent has ended, at most this long after it."""
Work = Callable[[], None]


@dataclass
class Ended:
    status: int
    """Exit status, or minus the signal that ended it."""
    out: str
    err: str
    hung: bool = False
    left: list[str] = field(default_factory=list)
    """Processes that were still running long after their parent."""


class Process:
    """One child. Its output goes through pipes, because limits on the file size must not affect it."""

    def __init__(self, work: Work, cwd: Path, environment: dict[str, str]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Blocked in the child until it is set up.
        pipes = [os.pipe(), os.pipe()]
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, cwd, environment, [write for _, write in pipes])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._read, self._text = [], [bytearray(), bytearray()]
        self._status: int | None = None
        for read, write in pipes:
            os.close(write)
            os.set_blocking(read, False)
            fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._read.append(read)

    def running(self) -> bool:
        if self._status is None:
            self._drain()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is None

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal. The process is not reaped before `running` reports its end, so its id is still valid."""
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.pid, number)

    def wait(self, patience: float) -> Ended:
        end, hung = time.monotonic() + patience, False
        while self.running():
            if time.monotonic() > end:
                hung = True
                self.signal(signal.SIGUSR2)  # A forked child prints its stack.
                time.sleep(1)
                self.signal(signal.SIGKILL)
                end += patience
            time.sleep(POLL_SECONDS)
        left = self._wait_for_the_others()
        self._drain()
        for descriptor in self._read:
            os.close(descriptor)
        self._read = []
        out, err = (text.decode(errors="replace") for text in self._text)
        return Ended(self._status or 0, out, err, hung, left)

    def until(self, condition: Callable[[], bool], patience: float) -> bool:
        """Wait for the condition while the process runs."""
        end = time.monotonic() + patience
        while self.running() and time.monotonic() < end:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def workers(self) -> list[int]:
        """Without a nursery they are children; else the nursery's. That of a command has its command line."""
        found = members(self.pid)
        children = {pid for pid in found if parent_of(pid) == self.pid}
        return [pid for pid in found if parent_of(pid) in children or "spawn_main" in command_of(pid)]

    def _wait_for_the_others(self) -> list[str]:
        end = time.monotonic() + GRACE_SECONDS
        while (others := members(self.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [f"{pid} {command_of(pid)}" for pid in others]
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _drain(self) -> None:
        for descriptor, text in zip(self._read, self._text, strict=False):
            with contextlib.suppress(BlockingIOError):
                while piece := os.read(descriptor, 1 << 16):
                    text += piece


def members(session: int) -> list[int]:
    """Live processes of that session."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, _, _, of = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state not in "ZX":
                    found.append(int(entry))
    return found


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def subbit(words: list[str], before: Work | None = None, *, real: bool = False) -> Work:
    """Work for a child that is `python -m subbit WORDS`; `before` runs in it first."""

    def work() -> None:
        if real:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.execv(sys.executable, [sys.executable, "-m", "subbit", *words])
        if before is not None:
            before()
        sys.argv = ["subbit", *words]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        runpy.run_module("subbit", run_name="__main__", alter_sys=True)

    return work


def _child(work: Work, cwd: Path, environment: dict[str, str], outputs: list[int]) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        os.chdir(cwd)
        os.environ.update(environment)
        tempfile.tempdir = None  # The child has its own folder for temporary files.
        for number, descriptor in zip((1, 2), outputs, strict=True):
            os.dup2(descriptor, number)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.closerange(3, 256)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), line_buffering=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR2, file=2)
        work()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
