"""The flagship on the arena's vision job with liars: two of the ten clients of every round, or every fifth client.

    python benchmarks/liars.py                    about half an hour; what is there already is not run again
    python benchmarks/render_flagship.py          the table of docs/flagship.md

Where every fifth client lies, two of a round do on average and up to five of ten by chance, which is more than the
aggregator is told to expect. Liars train normally and send their change times a factor; clients fit the head honestly.
Keys are the defaults but for the robust aggregator; honest runs without it are the arena's own.
"""

from __future__ import annotations

import itertools
import json
import runpy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from subbit.arena.jobs import read_job
from subbit.core.files import replace_file
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "liars.json"
JOB, METHOD, SEEDS, EVERY = "vision", "subbit", 3, 5
TOLD = ["times -10"]
FIFTH, TWO = "every fifth client", "two in every round"
ROBUST = ["aggregator=trimmed", "trim=0.2"]


def one_run(who: str, lie: str, seed: int) -> dict[str, Any]:
    job = read_job(ROOT / "experiments" / "arena" / f"{JOB}.toml")
    (text,) = job.entry(METHOD).texts(",".join(ROBUST))
    settings = job.resolve(text, [f"run.seed={seed}", "run.workers=1"])
    robustness = runpy.run_path(str(Path(__file__).with_name("robustness.py")))

    class Lying(robustness["WithLiars"]):  # type: ignore[misc]
        def train(self, orders: Sequence[Any]) -> Iterator[Any]:
            clients = [order.client for order in orders]
            self.liars = [each for each in clients if each % EVERY == 0] if who == FIFTH else clients[:2]
            return super().train(orders)  # type: ignore[no-any-return]

    made = run_job(build_problem(settings.run), settings, make_engine=lambda workplace: Lying(workplace, lie)).summary
    about = {"who": who, "lie": lie, "seed": seed, "keys": ROBUST}
    return {**about, "start": made["score_before"], "score": made["score"], "refused": made["failed_clients"]}


def main() -> None:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"job": JOB, "runs": []}
    done = {(run["who"], run["lie"], run["seed"]) for run in found["runs"]}
    for each in itertools.product((TWO, FIFTH), TOLD, range(SEEDS)):
        if each not in done:
            found["runs"].append(one_run(*each))
            replace_file(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
            print(f"{found['runs'][-1]} after {time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
