"""Looks at the folder of runs for all pages together, and only while there is one.

One look lists the folder, asks the system for the times and sizes of each run's files, and reads what has changed.
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
from pathlib import Path

from subbit.board.hostile_files import opened_folder
from subbit.board.run_course import Course, CourseReader
from subbit.board.run_row import FILES, Keys, Row, is_locked, keys_of, read_row
from subbit.core.locks import HOLDER

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


@dataclass
class _Known:
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
        for name in names or ():
            run = run_id(name)
            try:
                with opened_folder(self.folder / name) as folder:
                    found = self._look_at(folder, (run, name), known.get(run))
                    if found is not None and run in self._courses:
                        courses[run] = self._courses[run].read(folder)
            except OSError:  # It vanished, or is not ours to read.
                continue
            if found is not None:
                self._known[run] = found
        rows = {run: (each.look, each.row) for run, each in self._known.items()}
        return View(self._look, rows, courses, names is not None)

    def _look_at(self, folder: int, identity: tuple[str, str], before: _Known | None) -> _Known | None:
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
            return before
        shown = os.fsencode(identity[1]).decode(errors="replace")
        return _Known(keys, running, self._look, read_row(folder, (identity[0], shown), keys, running))


def run_id(name: str) -> str:
    """What a run is called in an address. Only those of the list are known, so no address leads elsewhere."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _names(folder: Path) -> list[str] | None:
    try:
        with os.scandir(folder) as entries:
            return [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return None


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
