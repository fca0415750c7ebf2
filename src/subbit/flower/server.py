"""The server's half: find or make the run folder, then run the job with Flower as its engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from flwr.serverapp import Grid

from subbit.config.load import Settings, write_toml
from subbit.files import replace_file
from subbit.flower.engine import FlowerEngine
from subbit.report.folder import RunFolder
from subbit.runtime.problem import Problem
from subbit.runtime.run import Progress, Result, run_job
from subbit.runtime.workplace import Workplace


def serve(
    grid: Grid,
    problem: Problem,
    folder: RunFolder,
    *,
    resume: bool,
    report: Callable[[Progress], None] | None = None,
) -> Result:
    engines = []

    def make_engine(workplace: Workplace) -> FlowerEngine:
        engines.append(FlowerEngine(grid, workplace, job_name(folder)))
        return engines[-1]

    result = run_job(problem, folder.settings, folder, resume=resume, report=report, make_engine=make_engine)
    for engine in engines:  # After the summary is written: until then the run may have to go on.
        engine.finish()
    return result


def continue_or_create(settings: Settings, split: str) -> tuple[RunFolder, bool]:
    """An unfinished run of the same configuration goes on; anything else of that name is moved aside."""
    path = Path(settings.run.folder) / settings.run.name
    unfinished = (path / "checkpoint" / "state.safetensors").is_file() and not (path / "summary.json").exists()
    if unfinished and (path / "config.toml").read_text(encoding="utf-8") == write_toml(settings):
        return RunFolder.open(path), True
    return RunFolder.create(settings, split), False


def job_name(folder: RunFolder) -> str:
    """32 random digits under which nodes keep their clients' memories of this run. Stays the same on resuming."""
    path = folder.path / "job"
    if not path.exists():
        replace_file(path, secrets.token_hex(16).encode())
    return path.read_text(encoding="ascii")
