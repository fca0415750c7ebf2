"""How much faster a round is when what the frozen layers give is kept, against the most that arithmetic allows.

The limit is measured: the same run on the trained blocks alone, fed with what the frozen ones give.

    python -m benchmarks.bench.engine.cache
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bench.engine.child import run_child
from benchmarks.bench.engine.jobs import BLOCKS, CLASSES, VIT, has_cache, problem_of, random_images, warm_cpu
from subbit.config.resolve import resolve
from subbit.data import Examples
from subbit.models.load_model import load_classifier
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.engines import InProcess
from subbit.runtime.problem import Problem
from subbit.runtime.workplace import Workplace

CLIENTS, EXAMPLES, TESTS = 4, 64, 256
KEPT, ROUNDS = 5, 6
HEAD_ROUNDS = 24
"""Of 10 ms each with the cache: of four, the fastest varied from 10 to 15 ms on a busy machine."""
TURNS = 30
"""Evaluations of each kind. On a busy machine the share of the limit varied from 0.84 to 1.4 as the difference of two
rounds, from five of each."""
WEIGHTS = f"{BLOCKS}: weights"


class Suffix(nn.Module):
    """The last blocks of a ViT classifier, its norm and its head."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        backbone = module.get_submodule("backbone")
        self.blocks = nn.ModuleList(list(_blocks(backbone))[-KEPT:])
        self.norm, self.head = backbone.get_submodule("layernorm"), module.get_submodule("head")

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            output = block(hidden)
            hidden = output if isinstance(output, Tensor) else output[0]
        logits: Tensor = self.head(self.norm(hidden)[:, 1:].mean(1))
        return logits


def _blocks(module: nn.Module) -> nn.ModuleList:
    return max((part for part in module.modules() if isinstance(part, nn.ModuleList)), key=len)


@torch.no_grad()
def hidden_before(module: nn.Module, examples: Examples) -> Examples:
    """What goes into the first of the last blocks."""
    caught: list[Tensor] = []
    first = _blocks(module)[-KEPT]
    handle = first.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].clone()))
    module.eval()
    for part in examples.inputs.split(64):
        module(part)
    handle.remove()
    return Examples(torch.cat(caught), examples.labels)


def measure_cache(
    modes: tuple[str, ...],
    clients: int = CLIENTS,
    rounds: int = ROUNDS,
    head_rounds: int = HEAD_ROUNDS,
    turns: int = TURNS,
) -> dict[str, Any]:
    """CPU seconds of training in a warm round, of an evaluation, and of a warm round that trains the head alone."""
    torch.set_num_threads(1)
    module = load_classifier(VIT, CLASSES, key=0)
    train, test = random_images(clients * EXAMPLES, (3, 32, 32)), random_images(TESTS, (3, 32, 32))
    whole = problem_of(module, train, clients, test)
    suffix = problem_of(Suffix(module), hidden_before(module, train), clients, hidden_before(module, test))
    common = {"head": "keep", "clients": clients, "rounds": rounds, "evaluate_every": rounds}
    masks = {"method": "deltamask", "select": WEIGHTS, **common}
    keys = {mode: {"cache": mode} if has_cache() else {} for mode in modes}
    jobs = {"limit": (suffix, masks), **{mode: (whole, {**masks, **keys[mode]}) for mode in modes}}
    found = {name: {"training": warm_cpu(*job)} for name, job in jobs.items()}
    for name, seconds in best_evaluations(jobs, turns).items():
        found[name]["evaluation"] = seconds
    for mode in modes:
        alone = {"method": "fedavg", "select": "head", **common, **keys[mode]}
        found[mode]["head"] = warm_cpu(whole, {**alone, "rounds": head_rounds, "evaluate_every": head_rounds})
    return found


def best_evaluations(jobs: dict[str, tuple[Problem, dict[str, Any]]], turns: int) -> dict[str, float]:
    """CPU seconds of the fastest evaluation of each job, in turns: a busy spell meets all of them. The difference that
    evaluating makes to a round would be a small one of two large numbers, each disturbed by itself."""
    evaluations: dict[str, Callable[[], object]] = {}
    for name, (problem, values) in jobs.items():
        workplace = Workplace(problem, resolve(values))
        method, engine = workplace.method("main"), InProcess(workplace, threads=1)
        order = EvaluationOrder(method.start(), method.primary_network, 0, None, 0, len(problem.test))
        evaluations[name] = partial(engine.evaluate, [order])
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(turns + 1):
        for name, evaluation in evaluations.items():
            started = process_time()
            evaluation()
            spent[name].append(process_time() - started)
    return {name: min(seconds[1:]) for name, seconds in spent.items()}  # The first fills the cache.


def cache() -> dict[str, Any]:
    if not has_cache():
        return {"results": {}, "skipped": "no key `cache` in this version"}
    found = run_child(["-m", "benchmarks.bench.engine.cache"]).found
    return {"results": cache_results(found), "round_cpu": found}


def cache_results(found: dict[str, Any]) -> dict[str, float]:
    """The speed-up of training and evaluation as a share of the limit, that of the head as it is."""
    off, exact, limit = (found[name] for name in ("off", "exact", "limit"))
    results = {f"cache_speedup_{what}": limit[what] / exact[what] for what in ("training", "evaluation")}
    return {**results, "cache_speedup_head": off["head"] / exact["head"]}


if __name__ == "__main__":
    print(json.dumps(measure_cache(("off", "exact", "bfloat16") if has_cache() else ("off",))))
