"""The flagship with one idea off at a time, and at three budgets: jobs of the arena with some keys changed.

    python benchmarks/ablations.py                        vision and skewed: 60 runs, about two minutes each
    python benchmarks/ablations.py --budgets              `bytes=` on vision: 9 runs
    python benchmarks/ablations.py --dry-run              what would run, in order
    python benchmarks/ablations.py text --rows default no-guard --seeds 0 --budget 60
    python benchmarks/render_flagship.py                  the tables of docs/flagship.md

A run is the job's row of `subbit` at half the rounds, scored at the end only; the default is run at this length too.
All rows have a seed before the next one begins. Every run is written when it ends, with its keys, and is not run again
until these are others, whether by the job, the row or a default. A run that failed is kept as such; `--retry` runs it
again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.arena.jobs import Job, read_job
from subbit.arena.kept_results import Found
from subbit.arena.races import Race, Runs, estimate, measured, run_stages, shortened, told
from subbit.arena.result_keys import is_result_of, keys_of
from subbit.config.resolve import Settings
from subbit.core.errors import DataError, SubbitError
from subbit.core.files import replace_file
from subbit.runtime.summarise import versions

ROOT = Path(__file__).parent.parent
JOBS, RESULTS = ROOT / "experiments" / "arena", ROOT / "benchmarks" / "results"
METHOD, SEEDS = "subbit", (0, 1, 2)
DEFAULT = "default"
Kept = dict[str, dict[str, dict[str, Any]]]
"""By job and row: `spec`, the keys of its runs, and `runs`."""


@dataclass(frozen=True)
class Experiment:
    results: Path
    jobs: tuple[str, ...]
    """Those to run if none is named."""
    rows: Mapping[str, str]
    """The keys that are changed, by the name of the row."""


ABLATIONS = Experiment(
    RESULTS / "ablations.json",
    ("vision", "skewed"),
    {
        DEFAULT: "",
        "no-guard": "guard=false",
        "no-calibration": "calibrate=false",
        "random-basis": "basis=random",
        "one-epoch": "epochs=1",
        "momentum": "server_momentum=0.5",
        "constant-rate": "schedule=constant",
        "no-quantisation": "codec=dense,down_codec=dense",
        "few-values": "dimensions=2048",
        "eden": "codec=eden,bits=1,down_codec=eden,down_bits=1",
    },
)
BUDGETS = Experiment(RESULTS / "budgets.json", ("vision",), {f"{each}": f"bytes={each}" for each in (150, 600, 2400)})


@dataclass(frozen=True)
class Planned:
    job: Job
    row: str
    keys: str
    seed: int
    settings: Settings

    @classmethod
    def of(cls, job: Job, row: str, keys: str, seed: int = 0) -> Planned:
        """Keys that cannot be are refused here, before anything has run."""
        (text,) = job.entry(METHOD).texts(keys)
        found = job.resolve(text, [f"run.seed={seed}"])
        return cls(job, row, keys, seed, shortened(found, found.run.validation))

    def __str__(self) -> str:
        return f"{self.job.name} {self.row}: {self.keys or 'default keys'}, seed {self.seed}"


def read_kept(path: Path) -> Kept:
    found: Kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def known(path: Path, planned: Planned) -> list[Found]:
    """The runs of a row that are still valid, failed ones included."""
    kept = read_kept(path).get(planned.job.name, {}).get(planned.row)
    return kept["runs"] if kept is not None and is_result_of(kept["spec"], planned.settings) else []


def keep(path: Path, planned: Planned, found: Found) -> None:
    """Add a run. The file is read again, so that a second process that runs another job loses nothing."""
    others = [run for run in known(path, planned) if run["seed"] != planned.seed]
    kept = read_kept(path)
    kept.setdefault(planned.job.name, {})[planned.row] = {
        "spec": keys_of(planned.settings),
        "versions": versions(),
        "runs": sorted([*others, {"seed": planned.seed, **found}], key=lambda run: int(run["seed"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(kept, indent=1) + "\n").encode())


def plan(experiment: Experiment, jobs: Sequence[Job], rows: Sequence[str], seeds: Sequence[int]) -> list[Planned]:
    return [Planned.of(job, row, experiment.rows[row], seed) for seed in seeds for job in jobs for row in rows]


def is_missing(path: Path, planned: Planned, retry: bool = False) -> bool:
    found = [run for run in known(path, planned) if run["seed"] == planned.seed]
    return not found or (retry and "error" in found[0])


def expected(path: Path, planned: Planned) -> float:
    """Seconds: as the row took before, else as the others of this job did, else as the arena says."""
    kept = read_kept(path).get(planned.job.name, {})
    for records in ([kept[planned.row]] if planned.row in kept else [], [*kept.values()]):
        walls = [run["wall"] for record in records for run in record["runs"] if "error" not in run]
        if walls:
            return statistics.fmean(walls)
    return estimate(RESULTS / "arena", Race(planned.job, planned.job.entry(METHOD), "", planned.seed))


def run_all(
    path: Path, planned: Sequence[Planned], minutes: float | None, tell: Callable[[str], None], run: Runs = run_stages
) -> None:
    """Run one after the other; none starts that would end after the minutes."""
    started = time.monotonic()
    for each in planned:
        seconds = expected(path, each)
        if minutes is not None and time.monotonic() - started + seconds > 60 * minutes:
            tell(f"{each}: about {seconds / 60:.1f} min would exceed the budget; stopped")
            return
        tell(f"{each}: about {seconds / 60:.1f} min")
        try:
            found = measured([each.settings], _whatever_happens(run))
        except DataError as error:
            tell(f"  not run: {error}")
            continue
        keep(path, each, found)
        tell(f"  {told(found)} in {found['wall']:.0f} s")


def _whatever_happens(run: Runs) -> Runs:
    """The arena keeps errors that are raised on purpose; here no other one ends the runs that follow either."""

    def guarded(stages: Sequence[Settings]) -> dict[str, Any]:
        try:
            return run(stages)
        except SubbitError:
            raise
        except Exception as error:
            raise SubbitError(f"{type(error).__name__}: {error}") from error

    return guarded


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("jobs", nargs="*", help="jobs of the arena")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only these rows")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="no run starts that would exceed them")
    parser.add_argument("--budgets", action="store_true", help="the score at three values of bytes=")
    parser.add_argument("--dry-run", action="store_true", help="say what would run")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    given = parser.parse_args(words)
    experiment = BUDGETS if given.budgets else ABLATIONS
    rows = given.rows or [*experiment.rows]
    if unknown := {*rows} - {*experiment.rows}:
        parser.error(f"no row {', '.join(sorted(unknown))}: needs some of {', '.join(experiment.rows)}")
    os.chdir(ROOT)  # Paths in job files are relative to the clone.
    try:
        jobs = [read_job(JOBS / f"{name}.toml") for name in given.jobs or experiment.jobs]
        everything = plan(experiment, jobs, rows, given.seeds)
        todo = [each for each in everything if is_missing(experiment.results, each, given.retry)]
    except SubbitError as error:
        parser.error(str(error))
    print(f"{len(todo)} of {len(everything)} runs to make: {experiment.results.name}", flush=True)
    if given.dry_run:
        for each in todo:
            print(f"{each}: about {expected(experiment.results, each) / 60:.1f} min")
        return
    run_all(experiment.results, todo, given.budget, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
