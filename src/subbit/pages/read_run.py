"""What is in a run folder, as far as it can be read: a run may be going on, killed, or damaged in places."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subbit.config.resolve import read_toml
from subbit.core.errors import RunFolderError, SubbitError
from subbit.pages.ledger_sums import LedgerSums, read_ledger_sums
from subbit.runtime.events import Before, Event, HeadRound, MainRound, read_event
from subbit.runtime.folder import EVENTS, LAYERS, LEDGER, RunFolder
from subbit.runtime.making import HELD


@dataclass
class RunData:
    folder: RunFolder
    config: Mapping[str, Any]
    config_text: str
    summary: Mapping[str, Any] | None
    """None while the run is not finished."""
    events: list[Event]
    ledger: LedgerSums | None
    split: Mapping[str, Any] | None
    layers: Mapping[str, Any] | None
    split_text: str
    unread: list[str] = field(default_factory=list)
    """What could not be read, for people."""

    @property
    def name(self) -> str:
        return str(self.config.get("name") or self.folder.path.name)

    @property
    def before(self) -> Before | None:
        return next((event for event in self.events if isinstance(event, Before)), None)

    @property
    def rounds(self) -> list[MainRound]:
        return [event for event in self.events if isinstance(event, MainRound)]

    @property
    def asked(self) -> list[HeadRound | MainRound]:
        """The rounds of both phases."""
        return [event for event in self.events if not isinstance(event, Before)]

    @property
    def score_name(self) -> str:
        """The first of the scores, where no summary says it."""
        if self.summary is not None:
            return str(self.summary.get("score_name", "accuracy"))
        scored = [event.scores for event in self.events if event.scores]
        return next(iter(scored[-1])) if scored else "score"

    def last_score(self) -> float | None:
        scores = [event.score for event in self.rounds if event.score is not None]
        return scores[-1] if scores else None


def read_run(path: Path) -> RunData:
    folder = RunFolder.look(path)
    unread: list[str] = []
    try:
        config_text = (path / "config.toml").read_text(encoding="utf-8", errors="replace")
        config: Mapping[str, Any] = read_toml(path / "config.toml")
    except (OSError, SubbitError) as error:
        config_text, config = "", {}
        unread.append(str(error))
    try:
        summary: Mapping[str, Any] | None = folder.read_summary()
        if not isinstance(summary, dict):
            raise RunFolderError(f"{path / 'summary.json'} is no summary")
    except RunFolderError as error:
        summary = None
        if (path / "summary.json").exists():
            unread.append(str(error))
    events = _events(path / EVENTS, unread)
    ledger = read_ledger_sums(path / LEDGER)
    if ledger is not None and ledger.left_out:
        unread.append(f"{LEDGER}: {ledger.left_out} lines cannot be read and are left out of the sums below")
    split, layers = (_object(path / name, unread) for name in (HELD, LAYERS))
    try:
        split_text = (path / "split.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        split_text = ""
    return RunData(folder, config, config_text, summary, events, ledger, split, layers, split_text, unread)


def _events(path: Path, unread: list[str]) -> list[Event]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        unread.append(f"{EVENTS} cannot be read: {error.strerror}")
        return []
    if lines.pop():
        unread.append(f"the last line of {EVENTS} is cut off, as by a process that was killed: it is left out")
    events, damaged = [], 0
    for line in lines:
        try:
            events.append(read_event(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged += 1
    if damaged:
        unread.append(f"{EVENTS}: {damaged} lines are damaged and left out")
    return events


def _object(path: Path, unread: list[str]) -> Mapping[str, Any] | None:
    """A small JSON file; none where there is none, as in runs of earlier versions."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        unread.append(f"{path.name} cannot be read and is left out")
        return None
    return found if isinstance(found, dict) else None
