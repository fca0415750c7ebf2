"""Server side: finds or creates the run folder, then runs the job with Flower as its engine."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path

from flwr.serverapp import Grid

from subbit.config.resolve import Settings, with_track, write_toml
from subbit.config.schema import AUTO_NAME
from subbit.flower.engine import FlowerEngine
from subbit.runtime.folder import RunFolder, is_started
from subbit.runtime.problem import Problem
from subbit.runtime.run import Progress, Result, run_job
from subbit.runtime.side_files import Split
from subbit.runtime.workplace import Workplace


def serve(
    grid: Grid,
    problem: Problem,
    folder: RunFolder,
    *,
    resume: bool,
    report: Callable[[Progress], None] | None = None,
    settings: Settings | None = None,
) -> Result:
    """`settings` may differ from the folder's in `track`: an earlier process may have had other trackers."""
    engines = []

    def make_engine(workplace: Workplace) -> FlowerEngine:
        engines.append(FlowerEngine(grid, workplace))
        return engines[-1]

    settings = settings or folder.settings
    result = run_job(problem, settings, folder, resume=resume, report=report, make_engine=make_engine)
    for engine in engines:  # Only after the summary is written; until then the run may have to be resumed.
        engine.finish()
    return result


def continue_or_create(settings: Settings, split: str, held: Split | None = None) -> tuple[RunFolder, bool]:
    """Resume an unfinished run with the same configuration; rename anything else with that name.

    A run without a name is named after its method, so that it is found again.
    """
    if settings.run.name == AUTO_NAME:
        settings = dataclasses.replace(settings, run=dataclasses.replace(settings.run, name=settings.run.method))
    path = Path(settings.run.folder) / settings.run.name
    unfinished = is_started(path) and not (path / "summary.json").exists()
    if unfinished and _is_recorded(path, settings):
        return RunFolder.open(path), True
    return RunFolder.create(settings, split, held), False


def _is_recorded(path: Path, settings: Settings) -> bool:
    """Whether the folder has this configuration; its trackers may be others."""
    try:
        text = (path / "config.toml").read_text(encoding="utf-8")
        return text == write_toml(with_track(settings, tomllib.loads(text).get("track")))
    except (OSError, ValueError):  # Damaged.
        return False
