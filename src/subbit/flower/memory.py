"""What a client keeps between its turns, on the disk of its own node.

Flower's `context.state` lives as long as one Flower run. A server that was killed comes back as another Flower run,
and a run that goes on must equal one that was never interrupted; so memories are files:

    FOLDER/JOB/CLIENT/TURN.safetensors      TURN is 0 for the head phase, 1 + round in the main phase

The server names the turn whose memory a client shall use: that of the client's last answer which counted. An answer
that came too late, or was lost with the server, left a file that nobody asks for. Files of other turns are deleted
as soon as they can no longer be asked for, jobs that were not touched for a month with the next one that starts.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from subbit.errors import FrameError
from subbit.files import replace_file
from subbit.flower.records import NO_MEMORY
from subbit.runtime.messages import Phase

Memory = dict[str, NDArray[Any]]
FORGET_AFTER_SECONDS = 30 * 24 * 3600.0


def turn_number(phase: Phase, round_number: int) -> int:
    return 0 if phase == "head" else 1 + round_number


class NodeMemory:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, job: str, client: int, turn: int) -> Memory:
        if turn == NO_MEMORY:
            return {}
        try:
            memory: Memory = load(self._path(job, client, turn).read_bytes())
        except (OSError, SafetensorError) as error:
            raise FrameError(
                "memory",
                f"this node no longer has what client {client} kept of turn {turn}, it starts afresh next time "
                f"({type(error).__name__})",
            ) from None
        return memory

    def write(self, job: str, client: int, turn: int, memory: Memory, used: int) -> None:
        """Keep the memory of this turn, and that of the turn `used`: if the server loses this answer, it asks again."""
        path = self._path(job, client, turn)
        if not path.parent.parent.exists():
            self._forget_old_jobs()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, save({name: np.ascontiguousarray(value) for name, value in memory.items()}))
        for other in path.parent.glob("*.safetensors"):
            if other.stem not in (str(turn), str(used)):
                other.unlink(missing_ok=True)

    def _path(self, job: str, client: int, turn: int) -> Path:
        return self._folder / job / str(client) / f"{turn}.safetensors"

    def _forget_old_jobs(self) -> None:
        oldest = time.time() - FORGET_AFTER_SECONDS
        for job in self._folder.glob("*"):
            newest = max((path.stat().st_mtime for path in job.rglob("*.safetensors")), default=0.0)
            if newest < oldest:
                shutil.rmtree(job, ignore_errors=True)
