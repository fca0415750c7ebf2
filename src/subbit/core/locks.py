"""Only one process at a time may use a folder. The operating system releases the lock when its process ends."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

from filelock import FileLock, Timeout

from subbit.core.errors import RunFolderError
from subbit.core.files import replace_file

LOCK, HOLDER = "lock", "running.json"


class FolderLock:
    """Held from construction until `release`. `running.json` next to it tells people which process holds it."""

    def __init__(self, folder: Path, what_to_do: str) -> None:
        self._folder = folder
        self._lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunFolderError(f"{folder} is in use by {_holder(folder)}: {what_to_do}") from None
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            replace_file(folder / HOLDER, (json.dumps(holder) + "\n").encode())
        except BaseException:
            self._lock.release()
            raise

    def moved_to(self, folder: Path) -> None:
        """Update the path after the folder, with the lock in it, was renamed."""
        self._folder = folder

    def release(self) -> None:
        if self._lock.is_locked:
            (self._folder / HOLDER).unlink(missing_ok=True)
            self._lock.release()


def _holder(folder: Path) -> str:
    try:
        found = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return f"process {found['process']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
