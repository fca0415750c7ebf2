"""Whether networks survive the default rates: methods with default keys on the arena's jobs with pre-trained networks.

    python benchmarks/default_rates.py            about an hour; what is there already is not run again
    python benchmarks/render_default_rates.py     the table of docs/methods.md

A third of the rounds, three seeds, scored on a fifth of the training examples, held out. A combination that is refused
before the run, such as prompts on a convolutional network, is kept as refused; a run that fails as failed. Results of
other keys are made again.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_job
from subbit.arena.result_keys import is_result_of, keys_of
from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError, DataError, ModelError, SubbitError
from subbit.core.files import replace_file
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.summarise import versions

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "default-rates.json"
JOBS = ("imagenet", "text", "vision", "skewed", "language")
FEW_CLASSES = ("text", "skewed")
"""Where clients have one class, or two: every method with `calibrate=true`, too."""
TUNINGS = ("bias", "lora", "adapter", "prompt", "prefix")
METHODS = ("fedavg", *(f"fedpeft:tuning={tuning}" for tuning in TUNINGS))
CALIBRATED = ("fedavg:calibrate=true", *(f"fedpeft:tuning={tuning},calibrate=true" for tuning in TUNINGS))
SEEDS, SHARE = (1000, 1001, 1002), 3
KEPT = ("score_name", "higher_is_better", "score_before", "score", "rounds")


def settings_of(name: str, method: str, seed: int) -> Settings:
    job = read_job(ROOT / "experiments" / "arena" / f"{name}.toml")
    settings = job.resolve(method, [f"run.seed={seed}"])
    rounds = math.ceil(settings.run.rounds / SHARE)
    run = replace(settings.run, rounds=rounds, evaluate_every=rounds, validation=job.header.validation)
    return replace(settings, run=run)


def one_run(settings: Settings) -> dict[str, Any]:
    try:
        made = run_job(build_problem(settings.run), settings).summary
    except DataError:
        raise  # The data are not on this machine, which says nothing about the method.
    except (ConfigError, ModelError) as error:
        return {"refused": str(error)}
    except SubbitError as error:
        return {"failed": str(error)}
    return {name: made[name] for name in KEPT}


def main() -> None:
    os.chdir(ROOT)  # Paths in job files are relative to the clone.
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    known = {(run["job"], run["method"], run["seed"]): run for run in runs}
    planned = [*itertools.product(METHODS, JOBS), *itertools.product(CALIBRATED, FEW_CLASSES)]
    for seed, (method, job) in itertools.product(SEEDS, planned):
        settings = settings_of(job, method, seed)
        if (job, method, seed) in known and is_result_of(known[job, method, seed]["keys"], settings):
            continue
        found = {"job": job, "method": method, "seed": seed, **one_run(settings)}
        print(found, flush=True)
        known[job, method, seed] = found | {"keys": keys_of(settings), "versions": versions()}
        replace_file(RESULTS, (json.dumps({"runs": [*known.values()]}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
