"""Canaries: unrelated files placed where a run could damage them, and a check that they are unchanged."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

OLD = 1_000_000_000  # Seconds: September 2001.
FILES = {
    "photos/2001/beach.jpg": b"\xff\xd8 a photo",
    "photos/config.toml": b"mine = true\n",
    ".ssh/id_ed25519": b"a key",
    "models/state.safetensors": b"weights",
    "models/checkpoint/1.json": b"{}",
    "notes.txt": b"notes",
    "half.tmp": b"my own temporary file",
}
Seen = dict[str, tuple[object, ...]]


def plant(folder: Path) -> None:
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "empty").mkdir(exist_ok=True)
    link = folder / "link"
    if not link.is_symlink():
        link.symlink_to("photos")
    names = {Path(name).parts[0] for name in (*FILES, "empty", "link")}
    for top in names:
        for path in (folder / top, *(folder / top).rglob("*")):
            os.utime(path, (OLD, OLD), follow_symlinks=False)


def look(folder: Path, ours: tuple[Path, ...]) -> Seen:
    """Everything below a folder except `ours`: kind, mode, size, time and contents. The times of folders that contain
    our files change with them and are left out.
    """
    parents = {parent for path in ours for parent in path.parents}
    seen: Seen = {}
    for top, folders, files in os.walk(folder):
        here = Path(top)
        folders[:] = [name for name in folders if not _is_ours(here / name, ours)]
        for name in (*folders, *files):
            path = here / name
            if _is_ours(path, ours):
                continue
            found = path.lstat()
            time = None if path in parents else found.st_mtime_ns
            size = None if stat.S_ISDIR(found.st_mode) else found.st_size
            seen[str(path.relative_to(folder))] = (found.st_mode, size, time, _digest(path, found.st_mode))
    return seen


def _is_ours(path: Path, ours: tuple[Path, ...]) -> bool:
    """A run folder, or an earlier one of that name, which was renamed to NAME.1, NAME.2, ..."""
    if path in ours:
        return True
    return path.with_suffix("") in ours and path.suffix[1:].isdigit()


def _digest(path: Path, mode: int) -> str | None:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else None


def differences(before: Seen, after: Seen) -> list[str]:
    gone = [f"{name} is gone" for name in before.keys() - after.keys()]
    new = [f"{name} is new" for name in after.keys() - before.keys()]
    other = [f"{name} was {before[name]}, is {after[name]}" for name in before.keys() & after.keys()]
    changed = [words for name, words in zip(before.keys() & after.keys(), other, strict=True)
               if before[name] != after[name]]  # fmt: skip
    return sorted(gone + new + changed)
