"""Measurements in processes of their own: CPU seconds and peak memory of a process and all it waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import subbit

ROOT = Path(__file__).parents[3]
SOURCE = Path(subbit.__file__).parents[1]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
TIMEOUT = 1800.0


class ChildError(RuntimeError):
    """A measured process that failed; the message has the end of what it said."""


@dataclass(frozen=True)
class Spent:
    """What a process used."""

    cpu: float
    """User and system seconds, with the processes that it started and waited for."""
    wall: float
    peak_mb: float
    """The largest of these processes."""
    output: str

    @property
    def found(self) -> dict[str, Any]:
        """The JSON of the last line."""
        return dict(json.loads(self.output.splitlines()[-1]))


def run_child(
    words: Sequence[str],
    *,
    python: str = sys.executable,
    variables: Mapping[str, str] = ONE_THREAD,
    timeout: float = TIMEOUT,
    root: Path = ROOT,
    source: Path = SOURCE,
) -> Spent:
    """Run `python WORDS` in the folder `root`, with the subbit in `source`. Unless told: with those that run now."""
    path = os.pathsep.join([str(source), str(root)])
    environment = {**os.environ, **variables, "PYTHONPATH": path}
    with TemporaryFile() as output, TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen([python, *words], stdout=output, stderr=errors, cwd=root, env=environment)
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        # wait4 and not wait: it reports what this process used, and not what all children ever used.
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - started
        said, complaint = (_text_of(file) for file in (output, errors))
    if process.returncode:
        raise ChildError(f"{' '.join(words)}: exit status {process.returncode}: {(complaint or said)[-1000:]}")
    return Spent(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, said)


def _text_of(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace")).strip()


def best_cpu(words: Sequence[str], runs: int) -> float:
    """The least CPU seconds of several runs after one that warms up."""
    run_child(words)
    return min(run_child(words).cpu for _ in range(runs))
