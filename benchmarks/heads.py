"""Heads fitted on features of three networks: `python benchmarks/heads.py [JOB...]` (minutes; data: make arena-data).

Writes benchmarks/results/heads.json, job by job; `benchmarks/render_heads.py` shows it in docs/heads.md. Each head is
fitted on some of the training examples and scored on test examples that no choice has seen, except for `hindsight`,
which shows what the best choice would have been.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from subbit.arena.jobs import Job, read_job
from subbit.config.resolve import Settings
from subbit.core.files import replace_file
from subbit.data.examples import Examples
from subbit.methods.heads import HeadMethod
from subbit.models.discriminant import SHRINKAGES
from subbit.models.head_start import LdaStatistics, solve
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "benchmarks" / "results" / "heads.json"
SIZES = {"vision": (375, 1500, 6000), "imagenet": (375, 750, 2000), "text": (100, 200, 1000)}
NEWS = "data/bbc-news/news.jsonl?text=text&label=label&length=16&test_share=0.5"
CHANGED = {"text": {"dataset": NEWS, "test_limit": 1100}}
"""Keys that differ from the job of the arena."""
TEST = 2000
PENALTIES = (0.0003, 0.003, 0.03, 0.3)
TEMPERATURES = tuple(2.0 ** (power / 4) for power in range(-40, 5))

CODECS = ("float32", "float16", "int8", "factors", "lean")

Pair = tuple[Tensor, Tensor]


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


def settings_of(job: Job, head: str, limit: int) -> Settings:
    settings = job.resolve(f"fedavg:select=head,rounds=0,{head}", [])
    return replace(settings, run=replace(settings.run, limit=limit, test_limit=TEST, workers=1))


def heads(train: Pair, test: Pair, classes: int) -> Iterator[tuple[str, Pair]]:
    """Name, and weight with bias."""
    statistics = LdaStatistics.from_features(*train, classes)
    yield "plain", solve(statistics, 0.1, 1.0)
    yield "auto", solve(statistics)
    yield "probe", converged_probe(train)
    tried = [solve(statistics, each, 1.0) for each in SHRINKAGES]
    best = max(tried, key=lambda head: accuracy(head, test))
    warm = min(TEMPERATURES, key=lambda each: loss((each * best[0], each * best[1]), test))
    yield "hindsight", (warm * best[0], warm * best[1])


def converged_probe(train: Pair) -> Pair:
    """Logistic regression; its penalty is chosen on a fifth of the examples."""
    features, labels = (each.numpy() for each in train)
    scale = features.std(axis=0) + 1e-6
    inner, held_out = train_test_split(np.arange(len(labels)), test_size=0.2, random_state=0)

    def fit(penalty: float, rows: Any) -> Any:
        return LogisticRegression(C=penalty, max_iter=500).fit(features[rows] / scale, labels[rows])

    scores = {each: fit(each, inner).score(features[held_out] / scale, labels[held_out]) for each in PENALTIES}
    found = fit(max(PENALTIES, key=lambda each: scores[each]), np.arange(len(labels)))
    weight, bias = np.zeros((labels.max() + 1, features.shape[1])), np.full(labels.max() + 1, -1e4)
    weight[found.classes_], bias[found.classes_] = found.coef_ / scale, found.intercept_
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()


def logits(head: Pair, inputs: Tensor) -> Tensor:
    return inputs @ head[0].T + head[1]


def accuracy(head: Pair, data: Pair) -> float:
    return float((logits(head, data[0]).argmax(1) == data[1]).float().mean())


def loss(head: Pair, data: Pair) -> float:
    return float(cross_entropy(logits(head, data[0]), data[1]))


def measure(name: str) -> Iterator[dict[str, Any]]:
    job, limit = read_job(ROOT / "experiments" / "arena" / f"{name}.toml"), SIZES[name][-1]
    job = replace(job, base={**job.base, **CHANGED.get(name, {})})
    settings = settings_of(job, "head=lda", limit)
    problem = on_features(build_problem(settings.run), settings)
    assert isinstance(problem.train, Examples)
    assert isinstance(problem.test, Examples)
    test = problem.test.inputs, problem.test.labels
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(problem.train)))
    for count in SIZES[name]:
        train = problem.train.inputs[order[:count]], problem.train.labels[order[:count]]
        for label, head in heads(train, test, problem.classes):
            yield {"job": name, "examples": len(train[1]), "width": train[0].shape[1], "head": label} | {
                "score": accuracy(head, test),
                "loss": loss(head, test),
                "training_loss": loss(head, train),
            }
    for count in SIZES[name]:
        chosen = set(order[:count].tolist())
        fewer = replace(problem, parts=tuple(np.array([i for i in part if i in chosen], int) for part in problem.parts))
        for codec in CODECS:
            yield {"job": name, "examples": count, "width": test[0].shape[1]} | coded(job, fewer, test, codec)


def coded(job: Job, problem: Problem, test: Pair, codec: str) -> dict[str, Any]:
    """The head that the clients of a job fit together, with all that is sent for it."""
    result = run_job(problem, settings_of(job, f"head=lda,head_codec={codec}", len(problem.train)))
    assert isinstance(result.module, Features)
    head, told = result.module.head, result.summary
    clients = sum(len(part) > 0 for part in problem.parts)
    found = head.weight.detach(), head.bias.detach()
    values = {"score": told["score"], "loss": loss(found, test), "one_off_bytes": told["one_off_bytes"]}
    return {"codec": codec, **values, "clients": clients}


def main() -> None:
    os.chdir(ROOT)
    known = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
    for name in sys.argv[1:] or SIZES:
        rows = []
        for row in measure(name):
            rows.append(row)
            print(row, flush=True)
        known = [row for row in known if row["job"] != name] + rows
        replace_file(OUTPUT, (json.dumps(known, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
