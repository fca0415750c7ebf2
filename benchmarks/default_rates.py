"""Whether networks survive the default rates: methods with default keys on the arena's jobs with pre-trained networks.

    python benchmarks/default_rates.py            about half an hour; what is there already is not run again
    python benchmarks/render_default_rates.py     the table of docs/methods.md

A third of the rounds, one seed, scored on a fifth of the training examples, held out. What a method refuses is kept as
such, e.g. prompts on a convolutional network. Runs are those of today's defaults; remove a line to make it again.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_job
from subbit.core.errors import SubbitError
from subbit.core.files import replace_file
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "default-rates.json"
JOBS = ("imagenet", "text", "vision", "skewed", "language")
METHODS = ("fedavg", *(f"fedpeft:tuning={tuning}" for tuning in ("bias", "lora", "adapter", "prompt", "prefix")))
SEED, SHARE = 1000, 3


def one_run(name: str, method: str) -> dict[str, Any]:
    job = read_job(ROOT / "experiments" / "arena" / f"{name}.toml")
    about = {"job": name, "method": method}
    try:
        settings = job.resolve(method, [f"run.seed={SEED}"])
        rounds = math.ceil(settings.run.rounds / SHARE)
        run = replace(settings.run, rounds=rounds, evaluate_every=rounds, validation=job.header.validation)
        made = run_job(build_problem(run), replace(settings, run=run)).summary
    except SubbitError as error:
        return {**about, "error": str(error)}
    rate = settings.parameters.local.learning_rate
    kept = {name: made[name] for name in ("score_name", "higher_is_better", "score_before", "score", "rounds")}
    return {**about, "learning_rate": rate, **kept}


def main() -> None:
    os.chdir(ROOT)  # Paths in job files are relative to the clone.
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    done = {(run["job"], run["method"]) for run in runs}
    for method in METHODS:
        for job in JOBS:
            if (job, method) not in done:
                runs.append(one_run(job, method))
                replace_file(RESULTS, (json.dumps({"runs": runs}, indent=1) + "\n").encode())
                print(runs[-1], flush=True)


if __name__ == "__main__":
    main()
