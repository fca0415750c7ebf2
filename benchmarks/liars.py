"""The flagship on the arena's vision job with liars: every fifth client, so two of the ten in a round on average.

    python benchmarks/liars.py                    about ten minutes; what is there already is not run again
    python benchmarks/render_flagship.py          the table of docs/flagship.md

Liars train normally and send their change times a factor. Clients fit the head honestly. Keys are the defaults but for
the robust aggregator; honest runs without it are the arena's own.
"""

from __future__ import annotations

import json
import runpy
import time
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_job
from subbit.core.files import replace_file
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "liars.json"
JOB, METHOD, SEEDS, EVERY = "vision", "subbit", 3, 5
TOLD = ["times -10", "times -1"]
ROBUST = ["aggregator=trimmed", "trim=0.2"]


def one_run(lie: str, seed: int) -> dict[str, Any]:
    job = read_job(ROOT / "experiments" / "arena" / f"{JOB}.toml")
    (text,) = job.entry(METHOD).texts(",".join(ROBUST))
    settings = job.resolve(text, [f"run.seed={seed}", "run.workers=1"])
    liars = range(0, settings.run.clients, EVERY)
    robustness = runpy.run_path(str(Path(__file__).with_name("robustness.py")))
    made = run_job(
        build_problem(settings.run),
        settings,
        make_engine=lambda workplace: robustness["WithLiars"](workplace, lie, liars),
    ).summary
    about = {"lie": lie, "seed": seed, "liars": len(liars), "clients": settings.run.clients, "keys": ROBUST}
    return {**about, "start": made["score_before"], "score": made["score"], "refused": made["failed_clients"]}


def main() -> None:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"job": JOB, "runs": []}
    done = {(run["lie"], run["seed"]) for run in found["runs"]}
    for lie in TOLD:
        for seed in range(SEEDS):
            if (lie, seed) not in done:
                found["runs"].append(one_run(lie, seed))
                replace_file(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
                print(f"{found['runs'][-1]} after {time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
