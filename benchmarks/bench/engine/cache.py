"""How much faster a round is when what the frozen layers give is kept, against the most that arithmetic allows.

The limit is measured: the same run on the trained blocks alone, fed with what the frozen ones give.

    python -m benchmarks.bench.engine.cache
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bench.engine.child import run_child
from benchmarks.bench.engine.jobs import BLOCKS, CLASSES, VIT, has_cache, problem_of, random_images, warm_cpu
from subbit.data import Examples
from subbit.models.load_model import load_classifier
from subbit.runtime.problem import Problem

CLIENTS, EXAMPLES, TESTS = 4, 64, 256
KEPT, ROUNDS = 5, 6
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


def measure_cache(modes: tuple[str, ...], clients: int = CLIENTS, rounds: int = ROUNDS) -> dict[str, Any]:
    """CPU seconds of a warm round: of training, and of evaluation (the difference that evaluating makes)."""
    torch.set_num_threads(1)
    module = load_classifier(VIT, CLASSES, key=0)
    train, test = random_images(clients * EXAMPLES, (3, 32, 32)), random_images(TESTS, (3, 32, 32))
    whole = problem_of(module, train, clients, test)
    suffix = problem_of(Suffix(module), hidden_before(module, train), clients, hidden_before(module, test))
    masks = {"method": "deltamask", "select": WEIGHTS, "head": "keep", "clients": clients, "rounds": rounds}
    found: dict[str, Any] = {"limit": _training_and_evaluation(suffix, masks)}
    head = {"method": "fedavg", "select": "head", "head": "keep", "clients": clients, "rounds": rounds}
    for mode in modes:
        keys = {"cache": mode} if has_cache() else {}
        found[mode] = _training_and_evaluation(whole, {**masks, **keys})
        found[mode]["head"] = warm_cpu(whole, {**head, **keys, "evaluate_every": rounds})
    return found


def _training_and_evaluation(problem: Problem, values: dict[str, Any]) -> dict[str, float]:
    training = warm_cpu(problem, {**values, "evaluate_every": values["rounds"]})
    return {"training": training, "evaluation": warm_cpu(problem, {**values, "evaluate_every": 1}) - training}


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
