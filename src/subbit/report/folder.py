"""The run folder.

    config.toml       the resolved configuration: gives the same run again
    split.txt         who holds what
    events.jsonl      one line per round: who took part, who failed and why, what was observed, accuracy, seconds
    ledger.csv        one line per frame
    summary.json      the run in numbers, when it is finished
    checkpoint/       the state after the last finished round

Every file is replaced in one step. The checkpoint is written last, so that it never knows of a round that the other
files do not have; what they have beyond it is dropped on resuming.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subbit.config.load import Settings, read_toml, resolve, write_toml
from subbit.errors import Interrupted, RunFolderError
from subbit.files import replace_file
from subbit.wire.ledger import Ledger

if TYPE_CHECKING:
    from subbit.runtime.round import ServerState


class RunFolder:
    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, settings: Settings, split: str) -> RunFolder:
        """A new folder; one of the same name from an earlier run is moved aside, never deleted."""
        path = Path(settings.run.folder) / settings.run.name
        if path.exists():
            number = next(number for number in range(1, 10_000) if not path.with_name(f"{path.name}.{number}").exists())
            path.rename(path.with_name(f"{path.name}.{number}"))
        path.mkdir(parents=True)
        folder = cls(path, settings)
        folder._replace("config.toml", write_toml(settings))
        folder._replace("split.txt", split + "\n")
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.toml").is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.toml")
        return cls(path, resolve(read_toml(path / "config.toml")))

    # The state after a round.

    def write_state(self, state: ServerState, ledger: Ledger, events: list[dict[str, Any]]) -> None:
        from subbit.runtime.checkpoint import write_checkpoint

        self._replace("events.jsonl", "".join(json.dumps(event) + "\n" for event in events))
        ledger.write_csv(self.path / "ledger.csv")
        write_checkpoint(self._checkpoint, state, write_toml(self.settings))

    def read_state(self) -> tuple[ServerState, Ledger, list[dict[str, Any]]]:
        from subbit.runtime.checkpoint import read_checkpoint

        if not self._checkpoint.is_file():
            raise RunFolderError(f"{self.path} has no checkpoint yet: start the run again with subbit run")
        state = read_checkpoint(self._checkpoint, write_toml(self.settings))
        ledger = Ledger.read_csv(self.path / "ledger.csv").truncated(state.next_round - 1)
        events = [
            event
            for event in self.read_events()
            if event.get("phase") == "head" or event.get("round", -1) < state.next_round
        ]
        return state, ledger, events

    def read_events(self) -> list[dict[str, Any]]:
        try:
            lines = (self.path / "events.jsonl").read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / 'events.jsonl'} cannot be read: {error}") from None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C becomes a line that says how to go on. Typer would end the program without a word."""
        try:
            yield
        except KeyboardInterrupt:
            if self._checkpoint.is_file():
                raise Interrupted(f"interrupted; go on with subbit resume {self.path}") from None
            raise Interrupted("interrupted before there was a checkpoint; start again with subbit run") from None

    # The end.

    def write_summary(self, summary: dict[str, Any]) -> None:
        self._replace("summary.json", json.dumps(summary, indent=2) + "\n")

    def read_summary(self) -> dict[str, Any]:
        try:
            summary: dict[str, Any] = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunFolderError(
                f"{self.path} is not finished (no summary.json): go on with subbit resume {self.path}"
            ) from None
        return summary

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    def _replace(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())
