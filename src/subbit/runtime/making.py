"""Prepares a new run folder: finds free names and renames an earlier run, without touching other folders.

Callers hold the lock of the parent folder.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from subbit.core.errors import RunFolderError
from subbit.core.locks import HOLDER, LOCK, FolderLock
from subbit.core.plugins import FOLDER

BEGINNING = ("config.toml", "split.txt", "job")
"""Files that every run has from its start. Runs of earlier versions have the first two."""
HELD = "split.json"
"""Also there from the start, where it is known what clients hold."""
log = logging.getLogger("subbit")


def free_name(parent: Path, pattern: str) -> str:
    return next(name for name in map(pattern.format, range(1, 1_000_000)) if not os.path.lexists(parent / name))


def move_aside(path: Path) -> None:
    """Rename an earlier run that is not running. Raises if the path is anything else."""
    ours = not path.is_symlink() and all((path / name).is_file() for name in BEGINNING[:2])
    if not ours:
        raise RunFolderError(f"{path} is in the way and is not a run folder: give another name= or folder=")
    lock = FolderLock(path, "wait for it to end, or give another name=")
    aside = path.with_name(free_name(path.parent, path.name + ".{}"))
    path.rename(aside)
    lock.moved_to(aside)
    lock.release()
    log.warning("%s was there already: it is %s now", path, aside)


def remove_unfinished(path: Path) -> None:
    """Remove what is left of a run that was killed before it started."""
    if not os.path.lexists(path):
        return
    ours = {found for name in (*BEGINNING, HELD, LOCK, HOLDER) for found in (name, f"{name}.tmp")}
    folders = [folder for folder in (path / FOLDER, path) if folder.is_dir() and not folder.is_symlink()]
    found = {folder: list(folder.iterdir()) for folder in folders}
    known = all(each.name in ours or each in folders for each in found.get(path, ()))
    copies = all(
        re.fullmatch(r"\w+\.py(\.tmp)?", each.name) and not each.is_dir() for each in found.get(path / FOLDER, ())
    )
    if path not in folders or not known or not copies:
        raise RunFolderError(f"{path} is in the way and was not made by subbit: move it elsewhere")
    for folder in folders:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
