"""The run folder.

    config.toml       the resolved configuration; reproduces the run
    split.txt         which client holds which examples
    split.json        how many examples of each class each client holds, where that is known
    plugins/          copies of the files given by --plugin: a record, never loaded from here
    job               the identifier of this run in its frames, drawn at its start
    events.jsonl      one line per round: participants, failures, observations, accuracy, seconds
    ledger.csv        one line per frame
    checkpoint/       the state after each of the last two finished rounds, and a manifest of all files for each
    memory/           what clients keep between their turns
    layers.json       what became of each trained tensor, when the run is finished
    summary.json      the run in numbers, when it is finished
    report.html       the run to look at (subbit.pages): made from the other files, and part of no manifest
    live.jsonl        news of the round in progress, for those who watch; no result depends on it
    tracked.json      what trackers were told, with `track`; `tensorboard/` is written by one of them
    lock              held by the running process; `running.json` identifies it

Events and ledger are appended to; everything else is replaced atomically. A round is finished when its manifest is
written, which comes last. On resuming, anything beyond the manifest is truncated.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from subbit.config.resolve import Settings, read_toml, resolve_recorded, write_toml
from subbit.config.schema import AUTO_NAME, GIVEN
from subbit.core.appended_file import AppendedFile, Mark, verify
from subbit.core.errors import ConfigError, Interrupted, PluginError, RunFolderError
from subbit.core.files import replace_file
from subbit.core.json_records import as_json
from subbit.core.locks import HOLDER, FolderLock
from subbit.core.plugins import parse_record, recorded_files
from subbit.runtime.events import Event, read_event
from subbit.runtime.making import BEGINNING, HELD, free_name, move_aside, remove_unfinished
from subbit.runtime.manifest import Manifest, forget_all_but, read_manifest, state_path, turns, write_manifest
from subbit.wire.ledger import HEADING, Ledger, csv_lines

if TYPE_CHECKING:
    from subbit.runtime.round import ServerState
    from subbit.runtime.side_files import Layers, Split

EVENTS, LEDGER, LAYERS = "events.jsonl", "ledger.csv", "layers.json"
NAMED_RUNS = 5
PATIENCE = 60.0  # Seconds to wait for another process to create a folder.
log = logging.getLogger("subbit")


class RunFolder:
    def __init__(self, path: Path, settings: Settings | None) -> None:
        self.path, self._settings = path, settings
        self._lock: FolderLock | None = None
        self._growing: dict[str, AppendedFile] = {}
        self._beginning: dict[str, Mark] = {}
        self._events = 0
        self._last: Manifest | None = None
        self._configuration: str | None = None
        """As every checkpoint has it."""

    # Creating and opening.

    @classmethod
    def create(cls, settings: Settings, split: str, held: Split | None = None) -> RunFolder:
        """Create a new, locked folder. An existing run with the same name is renamed, never deleted."""
        parent = Path(settings.run.folder)
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / ".lock", timeout=PATIENCE):
            name = settings.run.name
            if name == AUTO_NAME:
                name = free_name(parent, settings.run.method + "-{}")
                settings = dataclasses.replace(settings, run=dataclasses.replace(settings.run, name=name))
            elif os.path.lexists(parent / name):
                move_aside(parent / name)
            folder = cls(parent / f".{name}.new", settings)
            folder._begin(split, held)
            folder._rename(parent / name)
        return folder

    def _begin(self, split: str, held: Split | None) -> None:
        """Written under a temporary name, so that a folder with the run's name is always complete."""
        remove_unfinished(self.path)
        self.path.mkdir()
        try:
            self._replace("config.toml", write_toml(self.settings))
            self._replace("split.txt", split + "\n")
            if held is not None:
                self._replace(HELD, json.dumps(as_json(held)) + "\n")
            self._replace("job", secrets.token_hex(16))
            for name, source in recorded_files(self.settings.run.plugins).items():
                (self.path / name).parent.mkdir(exist_ok=True)
                replace_file(self.path / name, source)
            self._take_lock()
        except BaseException:
            remove_unfinished(self.path)
            raise

    def _rename(self, path: Path) -> None:
        self.path.rename(path)
        self.path = path
        if self._lock is not None:
            self._lock.moved_to(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open for reading. `read_state` takes the lock and resumes the run."""
        folder = cls.look(path)
        folder._settings = folder.settings
        return folder

    @classmethod
    def look(cls, path: Path) -> RunFolder:
        """Open to read the recorded files. Unlike `settings`, this does not need the run's plugins."""
        if not (path / "config.toml").is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.toml{_runs_near(path)}")
        return cls(path, None)

    @property
    def settings(self) -> Settings:
        if self._settings is not None:
            return self._settings
        try:
            return resolve_recorded(read_toml(self.path / "config.toml"))
        except PluginError as error:
            raise PluginError(f"{self.path}: {error}; a copy is in {self.path / 'plugins'}") from None
        except ConfigError as error:
            raise RunFolderError(f"{self.path / 'config.toml'} is damaged: {error}") from None

    def _take_lock(self) -> None:
        if self._lock is None:
            self._lock = FolderLock(self.path, "wait for it to end, or give another name=")

    def tidy(self) -> None:
        """Remove what a process that was killed leaves, if none runs here: what says that it does, and half a file."""
        if (self.path / HOLDER).exists() or any(self._checkpoint.glob("*.tmp")):
            with suppress(RunFolderError, OSError):
                self._take_lock()
                self._remove_halves()
                self.release()

    def _remove_halves(self) -> None:
        for left_over in [*self._checkpoint.glob("*.tmp")]:
            left_over.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock; nothing more will be written."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def job(self) -> str:
        try:
            return (self.path / "job").read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / 'job'} cannot be read: {error}") from None

    def split(self) -> str:
        """The data split, as written at the start."""
        try:
            return (self.path / "split.txt").read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / 'split.txt'} cannot be read: {error}") from None

    @property
    def memory(self) -> Path:
        return self.path / "memory"

    # State after a round.

    def write_state(self, state: ServerState, ledger: Ledger, events: list[Event]) -> None:
        from subbit.runtime.checkpoint import write_checkpoint

        if not self._growing:
            self._growing = {
                EVENTS: AppendedFile(self.path / EVENTS),
                LEDGER: AppendedFile(self.path / LEDGER, HEADING),
            }
        new = events[self._events :]
        self._growing[EVENTS].append("".join(json.dumps(as_json(event)) + "\n" for event in new).encode())
        self._growing[LEDGER].append(csv_lines(ledger.take()))
        self._events = len(events)
        turn = state.next_round
        if self._configuration is None:
            self._configuration = write_toml(self.settings)
        digest = write_checkpoint(state_path(self._checkpoint, turn), state, self._configuration)
        marks = {name: file.mark for name, file in self._growing.items()}
        if not self._beginning:
            held = (HELD,) if (self.path / HELD).is_file() else ()
            names = (*BEGINNING, *held, *recorded_files(self.settings.run.plugins))
            self._beginning = {name: Mark.of((self.path / name).read_bytes()) for name in names}
        marks |= self._beginning
        self._last = Manifest(turn, digest, ledger.totals, self._events, marks)
        write_manifest(self._checkpoint, self._last)
        forget_all_but(self._checkpoint, turn)

    def last_state(self) -> ServerState:
        """The state after the last finished round, read-only."""
        return self._newest(("config.toml",))[1]

    def read_state(self) -> tuple[ServerState, Ledger, list[Event]]:
        """The state after the last finished round, for resuming: locks the folder and truncates it to that round."""
        self._take_lock()
        manifest, state = self._newest(None)
        events = self.read_events(manifest.events)
        self._growing = {name: AppendedFile.reopen(self.path / name, manifest.files[name]) for name in (EVENTS, LEDGER)}
        self._events, self._last = manifest.events, manifest
        self._remove_halves()
        return state, Ledger(before=manifest.totals), events

    def _newest(self, needed: tuple[str, ...] | None) -> tuple[Manifest, ServerState]:
        """The newest manifest whose files (all, or the needed ones) are intact, and its state."""
        from subbit.runtime.checkpoint import read_checkpoint

        damage: list[str] = []
        incomplete: list[tuple[Manifest, ServerState]] = []
        for turn in turns(self._checkpoint):
            try:
                manifest = read_manifest(self._checkpoint, turn)
                for name in manifest.files if needed is None else needed:
                    verify(self.path / name, manifest.files[name])
                path = state_path(self._checkpoint, turn)
                state = read_checkpoint(path, write_toml(self.settings), manifest.state)
            except RunFolderError as error:
                damage.append(str(error))
                continue
            if needed is None and self._lacks_memories(state):
                damage.append(f"{self.memory}: what clients kept after turn {turn} is not complete")
                incomplete.append((manifest, state))
                continue
            if damage:
                log.warning("%s; going back to the state before it", damage[0])
            return manifest, state
        if incomplete:
            return incomplete[0]  # Clients that lost their memory fail once, are counted, and start again as new.
        if damage:
            raise RunFolderError(f"{damage[0]}; there is no earlier state to go back to: start the run again")
        if (self._checkpoint / "state.safetensors").is_file():
            raise RunFolderError(f"{self.path} was made by an earlier version: start the run again with this one")
        again = "the same fine_tune(...)" if self.is_given() else "subbit run"
        raise RunFolderError(f"{self.path} has no checkpoint yet: start the run again with {again}")

    def _lacks_memories(self, state: ServerState) -> bool:
        """Whether a memory referenced by the state is missing or truncated, as after a power failure."""
        from subbit.runtime.client_memory import ClientMemories  # Needs numpy, which `subbit show` does not.

        memories = ClientMemories(self.memory)
        here = self.settings.run.engine == "simulator"
        return here and not all(memories.has(client, turn) for client, turn in state.kept.items())

    def read_events(self, count: int | None = None) -> list[Event]:
        """All complete lines, or the first `count`; lines after those may be damaged."""
        try:
            data = (self.path / EVENTS).read_bytes()
            return [read_event(json.loads(line)) for line in data[: data.rfind(b"\n") + 1].splitlines()[:count]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{self.path / EVENTS} cannot be read: {error}") from None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Turn Ctrl-C into a message on how to resume. Typer would exit silently."""
        try:
            yield
        except KeyboardInterrupt:
            if is_started(self.path):
                raise Interrupted(f"interrupted; go on with {self.how_to_resume()}") from None
            raise Interrupted("interrupted before there was a checkpoint; start again with subbit run") from None

    # End of the run.

    def write_summary(self, summary: dict[str, Any], layers: Layers | None = None) -> None:
        texts = {} if layers is None else {LAYERS: json.dumps(as_json(layers)) + "\n"}
        texts["summary.json"] = json.dumps(summary, indent=2) + "\n"  # Last: with it the run is finished.
        for name, text in texts.items():
            self._replace(name, text)
        if self._last is not None:
            files = {**self._last.files, **{name: Mark.of(text.encode()) for name, text in texts.items()}}
            write_manifest(self._checkpoint, dataclasses.replace(self._last, files=files))

    def read_summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        try:
            summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunFolderError(
                f"{self.path} is not finished (no summary.json): go on with {self.how_to_resume()}"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}. {self.how_to_resume()} writes it again") from None
        return summary

    def is_finished(self) -> bool:
        """Whether there is a summary, and it is intact."""
        try:
            return bool(self.read_summary())
        except RunFolderError:
            return False

    def how_to_resume(self) -> str:
        """The command, or the call of a run that no command can resume."""
        if self.is_given():
            return f"fine_tune(..., folder={str(self.path)!r}, resume=True) and the arguments it had"
        recorded = self._recorded().get("plugins")
        plugins = "" if recorded is None else "".join(f" --plugin {name}.py" for name, _ in parse_record(recorded))
        return f"subbit resume {self.path}{plugins}"

    def is_given(self) -> bool:
        """Whether the module and the data were given to `subbit.fine_tune`, and no configuration names them."""
        recorded = self._recorded()
        return GIVEN in (recorded.get("model"), recorded.get("dataset"))

    def refuse_given(self) -> None:
        """For commands that need the module or the data."""
        if self.is_given():
            raise RunFolderError(
                f"{self.path} was made by subbit.fine_tune, and its module and data are in your script alone: "
                f"{self.how_to_resume()} goes on, or returns the finished result, which has .module and .save(DIR)"
            )

    def _recorded(self) -> dict[str, Any]:
        return read_toml(self.path / "config.toml")

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def _replace(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())


def _runs_near(path: Path) -> str:
    """The newest runs in a folder, or beside a path that is not there."""
    where = path if path.is_dir() else path.parent
    found = sorted(where.glob("*/config.toml"), key=_changed, reverse=True)[:NAMED_RUNS]
    return f". Runs there, the newest first: {', '.join(str(file.parent) for file in found)}" if found else ""


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def is_started(path: Path) -> bool:
    """Whether the folder has a finished round from which the run can be resumed."""
    return (path / "config.toml").is_file() and bool(turns(path / "checkpoint"))
