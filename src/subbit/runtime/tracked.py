"""Tells the trackers of a run what happens. One that fails is left out with a warning; the run goes on.

What each of them was told is in `tracked.json` in the run folder, so that a resumed run goes on where the tracker is,
even if the run had to go back a round.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from subbit.config.resolve import Settings, write_toml
from subbit.core.blame import one_line
from subbit.core.errors import ConfigError, PluginError
from subbit.core.files import replace_file
from subbit.core.imported import import_function, is_imported
from subbit.core.registry import REGISTRIES
from subbit.core.values import split_names
from subbit.runtime.event_numbers import step_of
from subbit.runtime.events import Before, Event

FILE = "tracked.json"
log = logging.getLogger("subbit")


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker learns of a run when it is made."""

    name: str
    job: str
    """Identifier of the run, the same when it is resumed."""
    config: dict[str, Any]
    """The resolved configuration, flat: tables are part of the key, e.g. `deltamask.up.kappa`."""
    config_text: str
    """The contents of `config.toml`."""
    folder: Path | None
    """The run folder, if the run has one."""
    next_step: int = 0
    """The first step that it will be told; above 0 if it was told of the run before, by another process."""


def tracked_run(settings: Settings, job: str, folder: Path | None) -> TrackedRun:
    text = write_toml(settings)
    config = {key: value for key, value in _flat(tomllib.loads(text)).items() if key != "track"}
    name = settings.run.method if folder is None else settings.run.name
    return TrackedRun(name, job, config, text, folder)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def find_trackers(track: str | None) -> dict[str, Callable[[TrackedRun], Any]]:
    """What makes each tracker. Raises `ConfigError` if one cannot be imported."""
    found = {}
    for name in split_names(track):
        make = import_function("track", name) if is_imported(name) else REGISTRIES["tracker"].find(name)
        needed = getattr(make, "needs", "")
        if needed and find_spec(needed) is None:
            raise ConfigError(f"track={name}: {needed} is not installed: pip install 'subbit[{name}]'")
        found[name] = make
    return found


class Trackers:
    """All trackers of one run. None of its methods raises an error of a tracker."""

    def __init__(self, track: str | None, run: TrackedRun, *, resume: bool) -> None:
        """A new run is refused if a tracker cannot be imported; one that is resumed goes on without."""
        self.run = run
        self._told: dict[str, int] = {}
        self._finished: set[str] = set()
        self._running: dict[str, Any] = {}
        try:
            makers = find_trackers(track)
            for name, make in makers.items():
                if run.folder is None and getattr(make, "needs_folder", False):
                    raise ConfigError(f"track={name} writes into the run folder: give folder=, or another tracker")
        except ConfigError as error:
            if not resume:
                raise
            log.warning("%s; the run goes on without trackers", error)
            makers = {}
        self._makers = makers
        if makers and resume:
            self._read()

    def start(self) -> None:
        for name, make in self._makers.items():
            if name not in self._finished:
                self._safely(name, self._make, name, make)

    def _make(self, name: str, make: Callable[[TrackedRun], Any]) -> None:
        tracker = make(replace(self.run, next_step=self._told.get(name, 0)))
        for method in ("event", "finish"):
            if not callable(getattr(tracker, method, None)):
                raise PluginError(f"{type(tracker).__name__} has no {method}(): see docs/tracking.md")
        self._running[name] = tracker

    def follow(self, events: Sequence[Event]) -> None:
        """Tell each tracker what it was not told yet. Call it when the events are saved.

        The head phase waits for `before`: both are step 0, and a step is told once.
        """
        if not any(isinstance(event, Before) for event in events):
            return
        for name, tracker in list(self._running.items()):
            new = [event for event in events if step_of(event) >= self._told.get(name, 0)]
            if new:
                self._safely(name, self._tell, name, tracker, new)

    def _tell(self, name: str, tracker: Any, new: list[Event]) -> None:
        for event in new:
            tracker.event(deepcopy(event))  # Whatever it does to it.
        self._told[name] = step_of(new[-1]) + 1
        self._write()

    def finish(self, summary: dict[str, Any]) -> None:
        for name, tracker in list(self._running.items()):
            self._safely(name, tracker.finish, deepcopy(summary))
            if name in self._running:
                del self._running[name]
                self._finished.add(name)
                self._safely(name, self._write)

    def stop(self) -> None:
        """The run ends without being finished; after `finish` nothing is left to stop."""
        for name, tracker in list(self._running.items()):
            self._safely(name, getattr(tracker, "stop", lambda: None))
        self._running = {}

    def _safely(self, name: str, call: Callable[..., object], *arguments: Any) -> None:
        try:
            call(*arguments)
        except (Exception, SystemExit) as error:
            self._running.pop(name, None)
            log.warning("track=%s: %.300s; the run goes on without it", name, one_line(error))

    def _write(self) -> None:
        if self.run.folder is not None:
            record = {name: {"next": step, "finished": name in self._finished} for name, step in self._told.items()}
            replace_file(self.run.folder / FILE, (json.dumps(record, indent=1) + "\n").encode())

    def _read(self) -> None:
        """A file that is missing or damaged is like none: trackers are told everything again."""
        try:
            assert self.run.folder is not None
            for name, entry in json.loads((self.run.folder / FILE).read_text(encoding="utf-8")).items():
                self._told[name] = max(0, int(entry["next"]))
                self._finished |= {name} if entry["finished"] is True else set()
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._told, self._finished = {}, set()
            log.warning("%s cannot be read (%s): trackers are told of all rounds again", FILE, one_line(error))
