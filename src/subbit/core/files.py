"""Writing files so that a kill, a full disk or a power cut at any moment leaves the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write beside, flush to the disk, then rename. A write that fails leaves nothing beside."""
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
    if durable:
        flush_folder(path.parent)


def flush_folder(path: Path) -> None:
    """A new name is safe only once its folder is on the disk too."""
    if os.name != "posix":
        return  # Elsewhere folders cannot be opened.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
