"""Weights & Biases: offline, into the folder `wandb`, unless the environment says otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from subbit.runtime.event_numbers import metrics_of, numbers_of, step_of
from subbit.runtime.events import Event, HeadRound
from subbit.tracking.tracker import TrackedRun, Tracker

PROJECT = "subbit"


class Wandb(Tracker):
    """A run of Weights & Biases, offline unless WANDB_MODE or WANDB_API_KEY is set"""

    needs = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # Before it is imported: no report of its own errors.
        import wandb

        # Our own progress bar is not for its log, and its banner not for ours.
        quiet = wandb.Settings(console=os.environ.get("WANDB_CONSOLE", "off"), silent=is_offline())
        self.wandb = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run.job,
            name=run.name,
            config=run.config,
            mode="offline" if is_offline() else None,
            dir=os.environ.get("WANDB_DIR") or os.getcwd(),  # It would remember the folder of an earlier run.
            resume="allow",
            reinit="create_new",  # A run of the user's own script goes on.
            settings=quiet,
        )
        self._keep("config.toml", run.config_text)

    def event(self, event: Event) -> None:
        # A committed step takes no more numbers; the head phase shares its step with `before`.
        self.wandb.log(metrics_of(event), step=step_of(event), commit=not isinstance(event, HeadRound))

    def finish(self, summary: dict[str, Any]) -> None:
        self.wandb.summary.update(numbers_of(summary))
        self._keep("summary.json", json.dumps(summary, indent=2) + "\n")
        self.wandb.finish()

    def stop(self) -> None:
        self.wandb.finish(exit_code=1)

    def _keep(self, name: str, text: str) -> None:
        path = Path(self.wandb.dir) / name
        path.write_text(text, encoding="utf-8")
        self.wandb.save(str(path), base_path=self.wandb.dir, policy="now")


def is_offline() -> bool:
    """Nothing is sent unless somebody said so: a key, or a mode, which wandb then reads itself."""
    return not os.environ.get("WANDB_MODE") and not os.environ.get("WANDB_API_KEY")
