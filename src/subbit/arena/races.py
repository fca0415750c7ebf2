"""Runs of the arena: which are missing, how long they will take, and making them one after the other."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from subbit.arena.jobs import Entry, Job
from subbit.arena.kept_results import KEPT, Found, Record, read_record, record_path, write_record
from subbit.arena.result_keys import keys_of
from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError, DataError, SubbitError
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.summarise import versions

SUMMED = ("uplink_bytes", "downlink_bytes", "one_off_bytes", "total_bytes", "seconds", "failed_clients")
TUNING_SHARE = 0.5
"""Settings are compared at this share of the rounds."""
Runs = Callable[[Sequence[Settings]], dict[str, Any]]
"""Makes the stages of a run and returns its summary."""


@dataclass(frozen=True)
class Race:
    """One run: a setting that is tried, or the chosen one with a seed."""

    job: Job
    entry: Entry
    setting: str | None
    """To try; none: the chosen one."""
    seed: int

    def __str__(self) -> str:
        what = f"seed {self.seed}" if self.setting is None else f"tries {self.setting}"
        return f"{self.job.name} {self.entry.label}: {what}"

    def stages(self, chosen: str | None) -> list[Settings]:
        """What to run, one after the other. Settings that are tried see no test set and take half the rounds."""
        setting = self.setting if self.setting is not None else chosen or ""
        found = [self.job.resolve(text, [f"run.seed={self.seed}"]) for text in self.entry.texts(setting)]
        return found if self.setting is None else [shortened(each, self.job.header.validation) for each in found]


def shortened(settings: Settings, validation: float | None) -> Settings:
    """Half the rounds, scored at the end only."""
    rounds = math.ceil(settings.run.rounds * TUNING_SHARE)
    run = replace(settings.run, rounds=rounds, validation=validation, evaluate_every=max(1, rounds))
    return replace(settings, run=run)


def run_stages(stages: Sequence[Settings]) -> dict[str, Any]:
    """The summary of the last stage, with the bytes of all. Each starts from the network of the one before."""
    module: nn.Module | None = None
    before: dict[str, Any] = {}
    for settings in stages:
        problem = build_problem(settings.run)
        result = run_job(problem if module is None else replace(problem, module=module), settings)
        module, before = result.module, _added(before, result.summary)
    return before


def _added(before: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    if not before:
        return summary
    sums = {key: before[key] + summary[key] for key in SUMMED}
    return {**summary, **sums, "bytes_by_round": [before["total_bytes"] + each for each in summary["bytes_by_round"]]}


def races_missing(folder: Path, job: Job, entry: Entry, seeds: int) -> list[Race]:
    missing = read_record(folder, job, entry).missing(job, entry, seeds)
    return [Race(job, entry, setting, seed) for setting, seed in missing]


def estimate(folder: Path, race: Race) -> float:
    """Seconds of a run: as the same method took before, else as others took on this job, else as its file says."""
    share = 1.0 if race.setting is None else TUNING_SHARE
    for entries in ([race.entry], [*race.job.entries.values()]):
        records = [read_record(folder, race.job, entry) for entry in entries]
        whole = [run["wall"] for record in records for run in record.scored]
        whole += [run["wall"] / TUNING_SHARE for record in records for run in record.tried if "error" not in run]
        if whole:
            return float(share * sum(whole) / len(whole))
    return 60 * share * race.job.header.minutes


def run_race(folder: Path, race: Race, run: Runs = run_stages) -> Found:
    """Make the run and add it to the record of its method."""
    record = read_record(folder, race.job, race.entry)
    record.choose(race.entry)
    if race.setting is None and record.chosen is None:
        raise ConfigError(f"{race}: its settings are not all tried yet")
    setting = race.setting if race.setting is not None else record.chosen
    stages = race.stages(record.chosen)
    found: Found = {"setting": setting, "seed": race.seed, **measured(stages, run)}
    if race.setting is None:
        record.keys = [keys_of(each) for each in stages]
    (record.runs if race.setting is None else record.tried).append(found)
    record.versions = versions()
    record.choose(race.entry)
    write_record(folder, record)
    return found


def measured(stages: Sequence[Settings], run: Runs = run_stages) -> Found:
    """What is kept of a run, and its seconds. A run that fails is a result too."""
    started, computed = time.monotonic(), _computed()
    found: Found = {}
    try:
        summary = run(stages)
        found |= {key: summary[key] for key in KEPT if key in summary}
    except DataError:
        raise  # The data are not on this machine, which says nothing about the method.
    except SubbitError as error:
        found["error"] = str(error)
    return found | {"wall": round(time.monotonic() - started, 1), "cpu": round(_computed() - computed, 1)}


def _computed() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def run_missing(
    folder: Path,
    entries: Sequence[tuple[Job, Entry, int]],
    budget: float | None,
    tell: Callable[[str], None],
) -> Iterator[Race]:
    """Make what is missing, entry by entry with its number of seeds, and yield what was made.

    Several processes can fill the same folder as long as they run different methods: a record has one writer.
    No run starts that would end after the budget in seconds. One that a kill ends is made again by the next call.
    """
    started = time.monotonic()
    for job, entry, seeds in entries:
        for race in races_missing(folder, job, entry, seeds):
            expected = estimate(folder, race)
            if budget is not None and time.monotonic() - started + expected > budget:
                tell(f"{race}: about {expected / 60:.1f} min would exceed the budget; not started")
                break  # Nor what comes after it: the choice among settings needs all of them.
            tell(f"{race}: about {expected / 60:.1f} min")
            found = run_race(folder, race)
            tell(f"  {told(found)} in {found['wall']:.0f} s")
            yield race


def told(found: Found) -> str:
    return found.get("error") or f"{found['score_name']} {found['score']:.4f}, {found['total_bytes'] / 1e6:.2f} MB"


def forget(folder: Path, job: Job, entry: Entry) -> None:
    record_path(folder, job.name, entry.label).unlink(missing_ok=True)


def known(folder: Path, job: Job) -> dict[str, Record]:
    return {label: read_record(folder, job, entry) for label, entry in job.entries.items()}
