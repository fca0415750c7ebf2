"""Every method learns, with its defaults and as its paper has it, on a job of its own kind.

A run must end below its start, below where the same run ends with a learning rate of zero, and below guessing by the
shares of the classes: masks that nobody trains drift, a draw may be better than another one by chance, and a network
that is surer than it should be starts above guessing, so that its loss falls while it learns to tell nothing apart. The
margin is four standard errors of the difference, over parts of the training data and over draws of networks that are
drawn.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from subbit.config.resolve import Settings, resolve
from subbit.core.randomness import derive_key, torch_randomness
from subbit.data import Examples, load_dataset
from subbit.methods.names import find_method, method_names
from subbit.runtime.client_memory import MemoriesInRam
from subbit.runtime.folder import RunFolder
from subbit.runtime.networks import Networks
from subbit.runtime.problem import Problem
from subbit.runtime.round import ServerState
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import Scaled

Losses = NDArray[np.float64]
RANDOM = {"bnn", "drive", "eden", "fedavg", "fedpm", "fedprox", "hidenseek", "klms", "moon", "qsgd", "topk", "zampling"}
"""Papers that start from random weights. Those that train them are careful with pre-trained ones: `test_fedavg`."""
CENTRAL = {"edge-popup", "supermask"}
"""The same, and one client has all the data. Personal methods are known by their attribute; all others fine-tune."""
ROUNDS = {"deepreduce": 5, "fedmask": 4, "threshold-mask": 4}
ROUNDS |= {f"{name} paper": 2 for name in ("fedpeft", "fedprox", "moon", "zampling")}
ROUNDS |= {"standalone paper": 3, "per-fedavg paper": 40, "fedpeft default": 20}
"""Long turns need few, small steps many; otherwise ten. The default rates of FedPEFT are for networks that were trained
before, and fall."""
REPEATED = {"deepreduce": 9, "threshold-mask": 9}
"""How often a client has each example. Paper 000 has 26 steps in a turn, and 200 examples make four: too few for
scores that must cross a threshold within their turn, and for masks of which a sixth arrives wrong."""
PARTS, DRAWS, SIGMAS = 10, 8, 4.0


@cache
def digits(mirrored: bool = False) -> Examples:
    train = load_dataset("digits", limit=800, test_limit=10).train
    assert isinstance(train, Examples)
    return Examples(train.tensor.flip(-1).contiguous(), train.labels) if mirrored else train


def network() -> nn.Module:
    with torch_randomness(1):
        return nn.Sequential(
            Scaled(), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
        )


@cache
def trained_on_mirrored_digits() -> dict[str, torch.Tensor]:
    """What a network for fine-tuning has learnt before: a task like ours, and not ours."""
    module, data = network(), digits(mirrored=True)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(data.tensor), data.labels).backward()
        optimizer.step()
    return module.state_dict()


def problem_for(name: str) -> Problem:
    data, method = digits(), find_method(name)
    labels = data.labels.numpy()
    if method.personal:  # Two classes for each of five clients.
        parts = [np.flatnonzero(np.isin(labels, (client, 5 + client))) for client in range(5)]
    else:
        parts = np.array_split(np.arange(len(data)), 1 if name in CENTRAL else 4)
        parts = [np.tile(part, REPEATED.get(name, 1)) for part in parts]
    module = network()
    pretrained = not method.personal and name not in RANDOM | CENTRAL
    if pretrained:
        module.load_state_dict(trained_on_mirrored_digits())
    return Problem(
        module=module,
        train=data,
        parts=tuple(parts),
        test=Examples(data.tensor[:10], data.labels[:10]),
        classes=10,
        pretrained=pretrained,
        model_name="test",
        dataset_name="digits",
    )


def losses(module: nn.Module, data: Any) -> Losses:
    module.eval()
    with torch.no_grad():
        found = nn.functional.cross_entropy(module(data.tensor), data.labels, reduction="none")
    return np.asarray(found.double().numpy())


def of_clients(problem: Problem, networks: Networks) -> Losses:
    return np.concatenate([losses(networks[client], problem.client_data(client)) for client in networks])[None]


def of_state(problem: Problem, settings: Settings, state: Any) -> Losses:
    """Losses [draws, examples] of the primary network."""
    workplace = Workplace(problem, settings)
    primary = workplace.method("main").primary_network
    drawn = []
    for draw in range(DRAWS if primary == "sampled" else 1):
        workplace.write_network(state, primary, derive_key(7, "test-draw", draw), None)
        drawn.append(losses(workplace.module, problem.train))
    return np.stack(drawn)


def of_guessing(problem: Problem, personal: bool) -> Losses:
    """The shares of the classes among all examples, in the order of the losses above."""
    everything = [problem.client_data(client) for client in range(problem.clients)] if personal else [problem.train]
    labels = np.concatenate([np.asarray(data.labels) for data in everything])
    shares = np.bincount(labels) / len(labels)
    return np.asarray(-np.log(shares[labels]))[None]


def start_and_end(name: str, preset: str, folder: Path, **values: Any) -> tuple[Losses, Losses]:
    problem = problem_for(name)
    rounds = ROUNDS.get(f"{name} {preset}", ROUNDS.get(name, 10))
    given = {"method": name, "preset": preset, "rounds": rounds, "evaluate_every": rounds, "clients": problem.clients}
    settings = resolve({**given, "head": "keep", "folder": str(folder), "name": "job", **values})
    made = RunFolder.create(settings, "")
    result = run_job(problem, settings, made)
    assert result.summary["failed_clients"] == 0, result.summary["failures"]
    workplace = Workplace(problem, settings)
    start = workplace.method("main").start()
    if find_method(name).personal:
        before = Networks(problem, settings, MemoriesInRam(), "", ServerState("main", 0, start))
        return of_clients(problem, before), of_clients(problem, result.networks)
    return of_state(problem, settings, start), of_state(problem, settings, made.last_state().method)


def difference(before: Losses, after: Losses) -> tuple[float, float]:
    """Mean of the difference, and its standard error."""
    apart = before.mean(0) - after.mean(0)
    means = [part.mean() for part in np.array_split(np.random.default_rng(0).permutation(apart), PARTS)]
    draws = sum(each.mean(1).var(ddof=1) / len(each) for each in (before, after) if len(each) > 1)
    return float(apart.mean()), float(np.sqrt(np.var(means, ddof=1) / PARTS + draws))


def is_clear(before: Losses, after: Losses) -> bool:
    mean, error = difference(before, after)
    return mean > SIGMAS * error


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("name", method_names())
def test_a_preset_learns(name: str, preset: str, tmp_path: Path) -> None:
    start, end = start_and_end(name, preset, tmp_path / "learning")
    assert is_clear(start, end), f"start {start.mean():.4f}, end {end.mean():.4f}"
    guessed = of_guessing(problem_for(name), find_method(name).personal)
    assert is_clear(guessed, end), f"guessing {guessed.mean():.4f}, end {end.mean():.4f}"
    if not find_method(name).trains_weights(resolve({"method": name}).parameters):  # Weights do not move by themselves.
        _, drifted = start_and_end(name, preset, tmp_path / "still", learning_rate=0.0)
        assert is_clear(drifted, end), f"end {end.mean():.4f}, at a rate of zero {drifted.mean():.4f}"


@pytest.mark.parametrize("name", ["fedavg", "deltamask", "zampling"])
def test_what_does_not_learn_is_found_out(name: str, tmp_path: Path) -> None:
    start, end = start_and_end(name, "paper", tmp_path, learning_rate=0.0, epochs=1)
    assert not is_clear(start, end)
