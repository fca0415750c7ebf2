"""What is known of one method in one job: a JSON file that grows run by run and is committed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from subbit.arena.jobs import Entry, Job
from subbit.arena.result_keys import Keys, is_result_of
from subbit.core.errors import RunFolderError
from subbit.core.files import replace_file

Found = dict[str, Any]
"""One run: `setting`, `seed`, `wall` and `cpu` (seconds), and its summary as far as it is kept, or `error`."""
KEPT = (
    *("score_name", "higher_is_better", "score", "score_before", "score_by_round", "bytes_by_round"),
    *("uplink_bytes", "downlink_bytes", "one_off_bytes", "total_bytes", "uplink_bpp", "downlink_bpp"),
    *("parameters", "clients", "participants", "rounds", "split", "seconds", "failed_clients", "warnings"),
)
"""Keys of a run's summary."""


@dataclass
class Record:
    job: str
    method: str
    fingerprint: str
    tried: list[Found] = field(default_factory=list)
    """Runs on the validation split at half length."""
    chosen: str | None = None
    """The best of the tried settings; the only one, if there is one."""
    runs: list[Found] = field(default_factory=list)
    keys: list[Keys] = field(default_factory=list)
    """Of each stage of the runs with the chosen setting. Results from before these were kept have none."""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def scored(self) -> list[Found]:
        return [run for run in self.runs if "error" not in run]

    def missing(self, job: Job, entry: Entry, seeds: int) -> list[tuple[str | None, int]]:
        """The runs still to make, as (setting to try, seed); a setting of None is the chosen one, in full."""
        known = {run["setting"] for run in self.tried}
        tries = entry.settings if len(entry.settings) > 1 else ()
        trials = [(setting, job.header.tuning_seed) for setting in tries if setting not in known]
        made = {run["seed"] for run in self.runs if run["setting"] == self.chosen} if not trials else set()
        return [*trials, *((None, seed) for seed in range(seeds) if seed not in made)]

    def choose(self, entry: Entry) -> None:
        """Once all settings are tried. Runs of a setting that is no longer the choice are dropped."""
        tried = [run for run in self.tried if run["setting"] in entry.settings]
        if len(entry.settings) == 1:
            self.chosen = entry.settings[0]
        elif {run["setting"] for run in tried} == {*entry.settings}:
            self.chosen = best_setting(tried)
        else:
            self.chosen = None
        self.runs = [run for run in self.runs if run["setting"] == self.chosen]


def best_setting(tried: list[Found]) -> str:
    """The setting with the best score; the first of equal ones. A run that failed is worse than all others."""

    def rank(run: Found) -> float:
        if "error" in run:
            return -float("inf")
        return float(run["score"]) if run["higher_is_better"] else -float(run["score"])

    return str(max(tried, key=rank)["setting"])


def record_path(folder: Path, job: str, method: str) -> Path:
    return folder / job / f"{method}.json"


def read_record(folder: Path, job: Job, entry: Entry) -> Record:
    """An empty one if there is none, or if the job is another by now."""
    empty = Record(job.name, entry.label, job.fingerprint(entry))
    path = record_path(folder, job.name, entry.label)
    if not path.is_file():
        return empty
    try:
        found = Record(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{path}: not a result of the arena ({error}); remove it, or use --redo") from None
    if found.fingerprint != empty.fingerprint:
        return empty
    found.choose(entry)
    if found.runs and found.keys and not _are_current(found, job, entry):
        return empty
    return found


def _are_current(record: Record, job: Job, entry: Entry) -> bool:
    stages = [job.resolve(text, []) for text in entry.texts(record.chosen or "")]
    return len(stages) == len(record.keys) and all(map(is_result_of, record.keys, stages))


def write_record(folder: Path, record: Record) -> None:
    path = record_path(folder, record.job, record.method)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(asdict(record), indent=1) + "\n").encode())
