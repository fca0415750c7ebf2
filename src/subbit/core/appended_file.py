"""Append-only file with a running checksum.

A `Mark` identifies a prefix of the file by its length and SHA-256. With a mark one can check that the prefix is
unchanged and cut off everything after it, e.g. half a line written by a killed process, or the rest of an unfinished
round.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from subbit.core.errors import RunFolderError

PIECE = 1 << 20


@dataclass(frozen=True)
class Mark:
    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Mark:
        return cls(len(data), hashlib.sha256(data).hexdigest())


class AppendedFile:
    def __init__(self, path: Path, first: bytes = b"") -> None:
        """Create a new file that begins with `first`."""
        self.path, self._size, self._hash = path, 0, hashlib.sha256()
        path.touch()
        self.append(first)

    @classmethod
    def reopen(cls, path: Path, mark: Mark) -> AppendedFile:
        """Reopen the file and cut off everything after the mark."""
        found = cls.__new__(cls)
        found.path, found._size, found._hash = path, mark.size, verify(path, mark)
        if path.stat().st_size > mark.size:
            os.truncate(path, mark.size)
        return found

    @property
    def mark(self) -> Mark:
        return Mark(self._size, self._hash.hexdigest())

    def append(self, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(self._size)
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._size += len(data)
        self._hash.update(data)


def verify(path: Path, mark: Mark) -> hashlib._Hash:
    """Return the state of the checksum at the mark; `RunFolderError` if the file has changed before it."""
    state, left = hashlib.sha256(), mark.size
    try:
        with path.open("rb") as file:
            while left and (piece := file.read(min(PIECE, left))):
                state.update(piece)
                left -= len(piece)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from None
    if left:
        raise RunFolderError(f"{path} is {left} bytes shorter than it was")
    if state.hexdigest() != mark.sha256:
        raise RunFolderError(f"{path} is damaged: its first {mark.size} bytes are not what was written")
    return state
