"""A small job for all back ends: whole, and interrupted after two of its three rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subbit.runtime.folder import RunFolder
from subbit.runtime.run import Progress, run_job
from tests.problems import digits_problem, settings

ROUNDS = 3
STEPS = list(range(ROUNDS + 1))
"""0 is before the first round."""


def whole(folder: Path, track: str, **values: Any) -> tuple[RunFolder, dict[str, Any]]:
    chosen = settings(**{"method": "fedavg", "rounds": ROUNDS, "folder": str(folder), "track": track, **values})
    made = RunFolder.create(chosen, "")
    return made, run_job(digits_problem(), chosen, made).summary


def resumed(folder: Path, track: str, **values: Any) -> tuple[RunFolder, dict[str, Any]]:
    chosen = settings(**{"method": "fedavg", "rounds": ROUNDS, "folder": str(folder), "track": track, **values})
    made = RunFolder.create(chosen, "")

    def stop(progress: Progress) -> None:
        if progress.round_number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(digits_problem(), chosen, made, report=stop)
    opened = RunFolder.open(made.path)
    return opened, run_job(digits_problem(), opened.settings, opened, resume=True).summary


def untracked(**values: Any) -> dict[str, Any]:
    return run_job(digits_problem(), settings(**{"method": "fedavg", "rounds": ROUNDS, **values})).summary
