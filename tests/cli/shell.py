"""Runs `subbit` in real processes: with pipes, or in a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "subbit"]
QUICK = ["model=mlp", "head=keep", "clients=4", "limit=200", "test_limit=60", "rounds=3", "batch_size=16"]


def subbit(*words: str, folder: Path, status: int | None = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """`more`: variables of the environment. `status`: the exit status; none: any."""
    environment = {**os.environ, "COLUMNS": "80", **more}
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert status is None or done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def in_terminal(*words: str, folder: Path, **more: str) -> tuple[int, list[tuple[float, bytes]]]:
    """The exit status, and all that was written to a terminal of 80 columns, with the seconds since the start."""
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
    environment |= {"COLUMNS": "80", "TERM": "xterm", **more}
    ours, theirs = pty.openpty()
    started = time.monotonic()
    with subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = []
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # The other end is closed.
                break
            if not data:
                break
            written.append((time.monotonic() - started, data))
    os.close(ours)
    return process.returncode, written
