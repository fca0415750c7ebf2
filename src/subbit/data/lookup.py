"""Helpers of the readers: whole files, lines, names that must stay inside a folder, and memory checks."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from subbit.core.errors import DataError


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def read_text(path: Path) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found bytes that are not text in UTF-8 ({error.reason})") from error


def read_lines(path: Path) -> list[str]:
    """The non-empty lines, stripped. At least one."""
    lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{path}: found no line; need at least one")
    return lines


def inside(folder: Path, name: str, where: str) -> Path:
    """The file of that name under the folder. Rejects names that lead out of it."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise DataError(f"{where}: found the name {name!r}; need one that stays inside {folder}")
    return folder.joinpath(*parts)


def machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(count: int, each: int, where: str, advice: str) -> None:
    """Fail before reading more than this machine can hold, instead of swapping for hours."""
    needed, machine = count * each, machine_memory()
    if needed > machine:
        raise DataError(
            f"{where}: {count} examples of {each} bytes are {needed / 1e9:.1f} GB and this machine has "
            f"{machine / 1e9:.1f} GB of memory; need fewer (limit=...) or smaller ones ({advice})"
        )
