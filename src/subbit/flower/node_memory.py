"""What clients keep between their turns, on the disk of their node.

Flower's `context.state` lasts for one Flower run. A restarted server is a new Flower run, and a resumed run must equal
an uninterrupted one, so memories are stored in files:

    DIR/subbit-memory/JOB/...               DIR is the node's `memory-folder`, JOB 32 random digits

`runtime/client_memory.py` defines the files of a job; this module manages where they are and when they are deleted.

DIR may be any folder, even a home directory. Files are therefore written only to one folder inside it that this module
created and marked, and only job folders in there that it created and marked are deleted. A job is deleted when the
server reports that it is finished, when it was not used for a month, or when space is needed and it was idle for hours.
Jobs of personal methods are kept: their memories are the clients' networks, which exist nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.core.array_files import digest_of, read_digest
from subbit.core.errors import FrameError, SubbitError
from subbit.core.files import replace_file
from subbit.runtime.client_memory import NO_MEMORY, ClientMemories, Memory

JOB_PATTERN = re.compile(r"[0-9a-f]{32}")
ROOT = "subbit-memory"
MARKER = "made-by-subbit.json"
FORGET_AFTER_SECONDS = 30 * 24 * 3600.0
IDLE_SECONDS = 6 * 3600.0
"""Above the quota, a job that was idle for this long may be deleted for another."""
DEFAULT_QUOTA_MB = 4096
log = logging.getLogger("flwr")  # The node's log. The server receives reasons, but no paths.
_FILE_OVERHEAD = 1024  # Names, shapes and a checksum.


class MemoryFolderError(SubbitError):
    """A node that cannot store its client's memory. `cause` is `folder`, `quota` or `disk`."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class NodeMemory:
    """Manages the memories of all jobs on a node. `quota` is in bytes."""

    def __init__(self, folder: Path, quota: float = math.inf) -> None:
        self._root, self._quota = folder / ROOT, quota

    def of(self, job: str, *, personal: bool = False) -> JobMemory:
        """The memories of the clients of that job."""
        return JobMemory(self, job, personal)

    def read(self, job: str, client: int, turn: int) -> Memory:
        if turn == NO_MEMORY:
            return {}
        with _disk():
            self._check(job, client)
            try:
                return ClientMemories(self._root / job).read(client, turn)
            except FrameError as error:
                log.warning("%s", error)
                words = f"this node no longer has what client {client} kept of turn {turn}, it starts afresh next time"
                raise FrameError(error.cause, words) from None

    def write(self, job: str, client: int, turn: int, memory: Memory, used: int, *, personal: bool = False) -> int:
        """Store the memory of this turn. Returns the turn that the server should name next time."""
        if not memory:
            return NO_MEMORY
        with _disk():
            self._check(job, client)
            if not self._root.exists():
                self._root.parent.mkdir(parents=True, exist_ok=True)
                _make_marked(self._root, {"kind": "memory"})
            if not (self._root / job).exists():
                self._forget_old_jobs()
                _make_marked(self._root / job, {"kind": "job", "personal": personal})
            os.utime(self._root / job / MARKER)  # An unchanged memory is not written again.
            memories = ClientMemories(self._root / job)
            self._make_room(memories, client, memory, used)
            return memories.write(client, turn, memory, used)

    def forget(self, job: str) -> None:
        """Delete the memories of a finished job."""
        with _disk():
            self._check(job)
            if _marker(self._root / job).get("personal") is False:
                _remove(self._root / job)

    def _check(self, job: str, client: int | None = None) -> None:
        """Raise unless the folders are ours or do not exist."""
        kinds = ((self._root, "memory"), (self._root / job, "job"))
        foreign = [path for path, kind in kinds if os.path.lexists(path) and _marker(path).get("kind") != kind]
        if client is not None and (self._root / job / str(client)).is_symlink():
            foreign.append(self._root / job / str(client))
        if foreign:
            raise MemoryFolderError(
                "folder",
                f"the memory-folder of this node has a {foreign[0].name!r} that was not made by subbit (it is a link, "
                f"or {MARKER} is missing in it): nothing was touched. Move it away, or start the node with another "
                "memory-folder",
            )

    def _forgettable(self) -> Iterator[Path]:
        """Jobs that may be deleted, i.e. not those of personal methods."""
        for path in sorted(self._root.iterdir()):
            if JOB_PATTERN.fullmatch(path.name) and _marker(path).get("personal") is False:
                yield path

    def _forget_old_jobs(self) -> None:
        for job in self._forgettable():
            if time.time() - _touched(job) > FORGET_AFTER_SECONDS:
                _remove(job)

    def _make_room(self, memories: ClientMemories, client: int, memory: Memory, used: int) -> None:
        """Delete idle jobs if the quota requires it. Nodes that share a folder share its quota; two that write at the
        same time may exceed it by one memory."""
        needed = _FILE_OVERHEAD + sum(value.nbytes for value in memory.values())
        if self._quota == math.inf or _size(self._root) + needed <= self._quota:
            return
        if read_digest(memories.path(client, used)) == digest_of(memory, {}):
            return  # Nothing will be written.
        others = (path for path in self._forgettable() if path != memories.folder)
        for touched, other in sorted((_touched(path), path) for path in others):
            if time.time() - touched > IDLE_SECONDS:
                _remove(other)
            if _size(self._root) + needed <= self._quota:
                return
        raise MemoryFolderError(
            "quota",
            f"this node keeps {_size(self._root) / 1e6:.1f} MB for its clients and needs {needed / 1e6:.1f} MB more, "
            f"above its memory-quota-mb={self._quota / 1e6:g}: raise that, or delete jobs in {ROOT} that nobody needs",
        )


@dataclass(frozen=True)
class JobMemory:
    """The memories of one job, as used in a client's turn (`subbit.runtime.client_memory.Memories`)."""

    node: NodeMemory
    job: str
    personal: bool

    def read(self, client: int, turn: int) -> Memory:
        return self.node.read(self.job, client, turn)

    def write(self, client: int, turn: int, memory: Memory, used: int) -> int:
        return self.node.write(self.job, client, turn, memory, used, personal=self.personal)


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """Create files for the owner only, and convert disk errors to errors with a cause."""
    before = os.umask(0o077)
    try:
        yield
    except OSError as error:
        log.warning("%s", error)
        reason = error.strerror or type(error).__name__
        raise MemoryFolderError("disk", f"this node cannot keep what its client remembers: {reason}") from error
    finally:
        os.umask(before)


def _make_marked(path: Path, fields: dict[str, Any]) -> None:
    """Create a folder and its marker atomically: a folder without a marker is never ours, not even briefly."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    words = "subbit made this folder for what clients remember between their turns, and deletes from it as it needs"
    try:
        replace_file(fresh / MARKER, (json.dumps({"what": words, **fields}) + "\n").encode())
        fresh.rename(path)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not _marker(path):  # Otherwise another node on this machine was faster.
            raise


def _marker(path: Path) -> dict[str, Any]:
    """The contents of the marker in a real folder; empty if there is none."""
    marker = path / MARKER
    if path.is_symlink() or marker.is_symlink() or not marker.is_file():
        return {}
    try:
        fields = json.loads(marker.read_bytes())
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _remove(job: Path) -> None:
    """Remove the marker last, so that anything that could not be removed is still ours. Links are removed, not
    followed."""
    for path in job.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARKER:
            path.unlink(missing_ok=True)
    if [path.name for path in job.iterdir()] == [MARKER]:
        shutil.rmtree(job, ignore_errors=True)


def _stats(folder: Path) -> Iterator[os.stat_result]:
    """Stats of the folder and everything in it. Links are not followed; another node may delete files at the same
    time."""
    for parent, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            with contextlib.suppress(FileNotFoundError):
                yield os.lstat(os.path.join(parent, name))


def _touched(folder: Path) -> float:
    return max((entry.st_mtime for entry in _stats(folder)), default=math.inf)


def _size(folder: Path) -> int:
    return sum(entry.st_size for entry in _stats(folder) if not stat.S_ISDIR(entry.st_mode))
