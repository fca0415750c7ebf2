"""Runs `subbit` in real processes, with pipes or in a terminal; or in this one, where that is not the point."""

from __future__ import annotations

import contextlib
import io
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


def here(*words: str, folder: Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """As `subbit`, but in this process, which has imported torch already: seconds less for each call."""
    from subbit.cli.entry import main

    out, err, before, found = io.StringIO(), io.StringIO(), (os.getcwd(), sys.argv), 0
    os.chdir(folder)
    sys.argv = ["subbit", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        found = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        os.chdir(before[0])
        sys.argv = before[1]
    assert status is None or found == status, f"{words}: {found}\n{out.getvalue()}\n{err.getvalue()}"
    return subprocess.CompletedProcess([*words], found, out.getvalue(), err.getvalue())


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
