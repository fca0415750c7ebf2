"""Looks at the folder of runs for all pages together, and only while there is one.

One look lists the folder, asks the system for times and sizes, and reads what has changed. Of a run in which nobody
runs few are asked for: who starts in it writes `running.json`, which changes the time of its folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from subbit.board.hostile_files import key_of, opened_folder
from subbit.board.run_course import Course, CourseReader
from subbit.board.run_row import FILES, SUMMARY, Keys, Row, is_locked, keys_of, read_row
from subbit.core.locks import HOLDER
from subbit.runtime.folder import EVENTS

PAUSE = 0.4
"""Seconds between two looks."""
SHARE = 4
"""At least this many times as long as a look takes, so that a slow disk is not kept busy."""


@dataclass(frozen=True)
class View:
    """What was seen at the last look. A row is in it with the look at which it last changed."""

    look: int = 0
    rows: dict[str, tuple[int, Row]] = field(default_factory=dict)
    courses: dict[str, Course] = field(default_factory=dict)
    there: bool = True
    """Whether the folder exists."""


Signs = tuple[object, ...]


@dataclass
class _Known:
    signs: Signs
    """Of its folder and of two files. While they are the same, there is nothing new of a run that is not running."""
    keys: Keys
    running: bool
    look: int
    row: Row


class Looker:
    """Reads files, in one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, _Known] = {}
        self._courses: dict[str, CourseReader] = {}
        self._look = 0

    def look(self, open_runs: set[str]) -> View:
        self._look += 1
        known, self._known = self._known, {}
        self._courses = {run: self._courses.get(run) or CourseReader() for run in open_runs}
        courses: dict[str, Course] = {}
        names = _names(self.folder)
        for name, signs in names or ():
            run = run_id(name)
            before = known.get(run)
            if before is not None and before.signs == signs and not before.running and run not in open_runs:
                self._known[run] = before
                continue
            try:
                with opened_folder(self.folder / name) as folder:
                    found = self._look_at(folder, (run, name), before, signs)
                    if found is not None and run in open_runs:
                        courses[run] = self._courses[run].read(folder)
            except OSError:  # It vanished, or is not ours to read.
                continue
            if found is not None:
                self._known[run] = found
        rows = {run: (each.look, each.row) for run, each in self._known.items()}
        return View(self._look, rows, courses, names is not None)

    def _look_at(self, folder: int, identity: tuple[str, str], before: _Known | None, signs: Signs) -> _Known | None:
        keys = keys_of(folder)
        if keys[0] is None:
            return None  # Without a config.toml it is no run.
        same = before is not None and before.keys == keys
        held = keys[FILES.index(HOLDER)] is not None
        # Who runs in the folder has written `running.json`. While that is the same, a free lock stays free.
        if before is not None and before.keys[-1] == keys[-1] and not before.running:
            running = False
        else:
            running = held and is_locked(folder)
        if before is not None and same and before.running == running:
            before.signs = signs
            return before
        shown = os.fsencode(identity[1]).decode(errors="replace")
        return _Known(signs, keys, running, self._look, read_row(folder, (identity[0], shown), keys, running))


@lru_cache(maxsize=10_000)
def run_id(name: str) -> str:
    """What a run is called in an address. Only those of the list are known, so no address leads elsewhere."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _names(folder: Path) -> list[tuple[str, Signs]] | None:
    """The folders in it, each with its signs."""
    try:
        with opened_folder(folder) as here, os.scandir(folder) as entries:
            return [
                (entry.name, _signs(entry, here))
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return None


def _signs(entry: os.DirEntry[str], here: int) -> Signs:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    files = (key_of(here, f"{entry.name}/{name}") for name in (EVENTS, SUMMARY))
    return (found.st_ino, found.st_mtime_ns, *files)


class Watcher:
    """Shares one looker among all pages. `view` is what it saw last."""

    def __init__(self, folder: Path) -> None:
        self.view = View()
        self.pages = 0
        self.looks = 0
        self._looker = Looker(folder)
        self._open: Counter[str] = Counter()
        self._alone = asyncio.Lock()
        self._wanted, self._news = asyncio.Event(), asyncio.Event()
        self._last = -1e9
        self._wishes = self._heard = 0

    async def refresh(self) -> View:
        """A view no older than the pause, and not from before a page asked for a run's course."""
        async with self._alone:
            if time.monotonic() - self._last >= PAUSE or self._heard < self._wishes:
                self._heard = self._wishes
                self.view = await asyncio.to_thread(self._looker.look, set(self._open))
                self._last = time.monotonic()
                self.looks += 1
                self._news.set()
                self._news = asyncio.Event()
        return self.view

    async def watch(self) -> None:
        """Look again and again while a page follows."""
        while True:
            await self._wanted.wait()
            began = time.monotonic()
            await self.refresh()
            await asyncio.sleep(max(PAUSE, SHARE * (time.monotonic() - began)))

    @contextmanager
    def followed(self, runs: set[str]) -> Iterator[None]:
        """A page follows the list, and the course of these runs."""
        self.pages += 1
        self._open.update(runs)
        self._wishes += not runs <= self.view.courses.keys()
        self._wanted.set()
        try:
            yield
        finally:
            self.pages -= 1
            self._open -= Counter(runs)  # Leaves none at zero.
            if not self.pages:
                self._wanted.clear()

    async def next_view(self, patience: float) -> View | None:
        """The view after the next look; None if there is none for so many seconds."""
        try:
            await asyncio.wait_for(self._news.wait(), patience)
        except TimeoutError:
            return None
        return self.view
