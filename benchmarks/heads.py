"""Accuracy and bytes of fitted heads alone, from real frames: `python benchmarks/heads.py [JOB...]` (minutes).

Writes benchmarks/results/heads.json, job by job; `benchmarks/render_arena.py` shows it. Smaller than the arena's jobs,
one seed: enough to see which codec costs accuracy.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from subbit.arena.jobs import read_job
from subbit.config.resolve import Settings
from subbit.core.files import replace_file
from subbit.data.examples import Examples
from subbit.methods.heads import HeadMethod
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "benchmarks" / "results" / "heads.json"
SIZES = {"vision": (3000, 2000), "imagenet": (1500, 800), "text": (200, 600)}
HEADS = [
    *("head=lda,head_shrinkage=0.1,head_codec=float32", "head=lda,head_shrinkage=auto,head_codec=float32"),
    *("head=lda,head_shrinkage=auto,head_codec=float16", "head=lda,head_shrinkage=auto,head_codec=int8"),
    *("head=probe,head_epochs=1", "head=probe,head_epochs=50,head_learning_rate=0.01"),
]


class Features(nn.Module):
    """A network of nothing but its head."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(inputs)
        return outputs


def on_features(problem: Problem, settings: Settings) -> Problem:
    """The same clients with the features of their examples, so that the network runs once and not for every head."""
    workplace = Workplace(problem, settings)
    workplace.attach("head")
    method = workplace.method("head")
    assert isinstance(method, HeadMethod)
    train, test = (Examples(*method.features(data)) for data in (problem.train, problem.test))
    return replace(problem, module=Features(method.head.in_features, problem.classes), train=train, test=test)


def measure(name: str) -> list[dict[str, Any]]:
    job, (limit, test_limit) = read_job(ROOT / "experiments" / "arena" / f"{name}.toml"), SIZES[name]
    rows, problem = [], None
    for head in HEADS:
        settings = job.resolve(f"fedavg:select=head,rounds=0,{head}", [])
        settings = replace(settings, run=replace(settings.run, limit=limit, test_limit=test_limit, workers=1))
        problem = problem or on_features(build_problem(settings.run), settings)
        summary = run_job(problem, settings).summary
        rows.append({"job": name, "head": head.replace(",", " "), "score": summary["score"]})
        rows[-1]["one_off_bytes"] = summary["one_off_bytes"]
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    os.chdir(ROOT)
    known = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
    for name in sys.argv[1:] or SIZES:
        known = [row for row in known if row["job"] != name] + measure(name)
        replace_file(OUTPUT, (json.dumps(known, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
