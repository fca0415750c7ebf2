"""A step of masks and of Zampling against plain fine-tuning of the same weights by Adam: vit-micro, batch 64."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.bench.engine.child import run_child
from benchmarks.bench.engine.jobs import BLOCKS, CLASSES, VIT, by_torch, problem_of, random_images, uncached
from subbit.config.resolve import resolve
from subbit.core.randomness import torch_randomness
from subbit.data import Examples
from subbit.models.load_model import load_classifier
from subbit.models.select import select_parameters
from subbit.models.task import Turn
from subbit.runtime.workplace import Workplace

SELECTED = f"{BLOCKS}: weights"
BATCH, STEPS, REPEATS = 64, 4, 6
METHODS = {"mask": "deltamask", "zampling": "zampling"}


def plain_training(module: nn.Module, data: Examples, selection: str = SELECTED, batch: int = BATCH) -> float:
    """CPU seconds of an epoch of fine-tuning with torch's Adam."""
    names = set(select_parameters(module, selection))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    started = process_time()
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    module.train()
    for chosen in torch.randperm(len(data)).split(batch):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(data.inputs[chosen]), data.labels[chosen])
        loss.backward()
        optimizer.step()
        loss.item()
    return process_time() - started


def make_training(method: str, module: nn.Module, data: Examples, **keys: Any) -> Callable[[], float]:
    """CPU seconds of the local training of one client, as in its turn, without what is received and sent."""
    values = {"method": method, "clients": 1, "select": SELECTED, "head": "keep", **uncached(), **by_torch(), **keys}
    workplace = Workplace(problem_of(module, data, 1, data), resolve(values))
    chosen = workplace.method("main")
    state = chosen.start()
    view = chosen.open(chosen.broadcast(state, 0), 0)

    def train() -> float:
        trained = chosen.exchange.trained(view)
        started = process_time()
        chosen.trainer.train(trained, data, Turn(0, 0, {}))
        return process_time() - started

    return train


@torch_randomness(0)
def measure_steps(steps: int = STEPS, repeats: int = REPEATS, batch: int = BATCH) -> dict[str, Any]:
    """CPU seconds per step, the best of several; in turns, so that a busy machine is busy for all."""
    torch.set_num_threads(1)
    module, data = load_classifier(VIT, CLASSES, key=0), random_images(batch * steps, (3, 32, 32))
    ways = {name: make_training(method, module, data, batch_size=batch) for name, method in METHODS.items()}
    ways["finetune"] = partial(plain_training, module, data, batch=batch)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, train in ways.items():
            spent[name].append(train() / steps)
    return {name: min(seconds) for name, seconds in spent.items()}


def steps_over_finetune() -> dict[str, Any]:
    seconds = run_child(["-m", "benchmarks.bench.engine.steps"]).found
    return {
        "results": {f"{name}_step_over_finetune": seconds[name] / seconds["finetune"] for name in METHODS},
        "step_cpu": seconds,
    }


if __name__ == "__main__":
    print(json.dumps(measure_steps()))
