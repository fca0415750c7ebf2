"""Reads files that may be damaged, half-written, replaced, gone, or not ours, without following links or waiting.

A folder is opened once and its files are opened relative to it. So no path leads out of it, not even if somebody puts a
link in its place in between.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 24
"""A longer summary, configuration or line is not read."""
PIECE = 1 << 16
COMPARED = 4096
"""Bytes before the new ones that must be the same as ever."""
# Without waiting: a pipe with the name of a file must not stop the board.
READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
UNREADABLE = (OSError, ValueError, RecursionError)
"""What reading and parsing a damaged file raises."""
Key = tuple[int, int, int]


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, READING | getattr(os, "O_DIRECTORY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(folder: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, READING, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{name} is no file")
        yield descriptor
    finally:
        os.close(descriptor)


def key_of(folder: int, name: str) -> Key | None:
    """Another value whenever the file has changed; None if there is no such file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def read_whole(folder: int, name: str) -> bytes:
    with opened_file(folder, name) as file:
        if os.fstat(file).st_size > MOST_BYTES:
            raise ValueError(f"{name} is too long")
        return os.pread(file, MOST_BYTES, 0)


def read_record(folder: int, name: str) -> dict[str, Any]:
    return as_record(read_whole(folder, name))


def as_record(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def records_from_end(folder: int, name: str) -> Iterator[dict[str, Any]]:
    """The readable complete lines of a file, the last one first, read as far as they are asked for."""
    with opened_file(folder, name) as file:
        end, rest, complete, read = os.fstat(file).st_size, b"", False, 0
        while end and read < MOST_BYTES:
            start = max(0, end - PIECE)
            data = os.pread(file, end - start, start)
            read += len(data)
            end = start
            if not complete:
                data, complete = data[: data.rfind(b"\n") + 1], b"\n" in data
            first, *lines = (data + rest).split(b"\n")
            for line in reversed(lines if start else [first, *lines]):
                record = _record_or_none(line)
                if record is not None:
                    yield record
            rest = first


def _record_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        return as_record(line)
    except UNREADABLE:
        return None


class GrowingFile:
    """The lines of a file that grows. Each call of `read` returns the new ones, and reads no more than these."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        self._inode, self._offset, self._end = 0, 0, b""
        self.damaged = 0

    def read(self, folder: int) -> tuple[list[dict[str, Any]], bool]:
        """New records, and whether these are all: the file was replaced or cut off, what was read before is void."""
        found: list[dict[str, Any]] = []
        try:
            with opened_file(folder, self._name) as file:
                fresh = not self._continues(file)
                if fresh:
                    self.forget()
                    self._inode = os.fstat(file).st_ino
                while lines := self._next_lines(file):
                    for line in lines:
                        record = _record_or_none(line)
                        self.damaged += record is None
                        found += [] if record is None else [record]
                return found, fresh
        except OSError:
            gone = self._inode != 0
            self.forget()
            return [], gone

    def _continues(self, file: int) -> bool:
        """An inode may be used again, so what was read last must still be there."""
        if self._inode != os.fstat(file).st_ino:
            return False
        return os.pread(file, len(self._end), self._offset - len(self._end)) == self._end

    def _next_lines(self, file: int) -> list[bytes]:
        """Complete lines only: half a line is read again when its end is there."""
        length = PIECE
        while True:
            data = os.pread(file, length, self._offset)
            complete = data[: data.rfind(b"\n") + 1]
            if complete or len(data) < length:
                break
            if length >= MOST_BYTES:
                complete = data  # A line without an end is skipped piece by piece, as damaged.
                break
            length *= 8
        self._offset += len(complete)
        if complete:
            self._end = complete[-COMPARED:]
        return complete.removesuffix(b"\n").split(b"\n") if complete else []


def number(value: Any) -> float | int | None:
    """A finite number that JSON and JavaScript know; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if (math.isfinite(value) if isinstance(value, float) else abs(value) <= 2**53) else None


def whole(value: Any) -> int | None:
    found = number(value)
    return found if isinstance(found, int) and found >= 0 else None


def text(value: Any, most: int = 500) -> str | None:
    if not isinstance(value, str):
        return None
    return value if len(value) <= most else value[:most] + "…"
