"""Atomic file writes: after a kill, a full disk or a power cut there is either the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, durable: bool = True, named: bool = True) -> None:
    """Write to a temporary file, flush it to disk, then rename it. A failed write leaves no temporary file behind.

    `named=False`: the name is safe only once the folder is flushed for a later file.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable and named:
        flush_folder(path.parent)


def flush_folder(path: Path) -> None:
    """Flush a directory: a new file name is safe only once its folder is on disk too."""
    if os.name != "posix":
        return  # Other systems cannot open folders.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
