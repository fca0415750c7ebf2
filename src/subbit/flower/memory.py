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

from subbit.runtime.memory import ClientMemories

FORGET_AFTER_SECONDS = 30 * 24 * 3600.0


class NodeMemory:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, job: str) -> ClientMemories:
        """Where the clients of that job keep things."""
        folder = self._folder / job
        if not folder.exists():
            self._forget_old_jobs()
        return ClientMemories(folder)

    def _forget_old_jobs(self) -> None:
        oldest = time.time() - FORGET_AFTER_SECONDS
        for job in self._folder.glob("*"):
            newest = max((path.stat().st_mtime for path in job.rglob("*.safetensors")), default=0.0)
            if newest < oldest:
                shutil.rmtree(job, ignore_errors=True)
