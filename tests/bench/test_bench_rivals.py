"""What the engine is measured against does the same work: networks, federated averaging and the limit of the cache."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from benchmarks.bench.engine import cache
from benchmarks.bench.engine.cache import Suffix, hidden_before
from benchmarks.bench.engine.jobs import CLASSES, VIT, VIT_FOLDER, VIT_JOB, problem_of, random_images
from benchmarks.bench.engine.peers.networks import VitClassifier, as_floats, mlp
from benchmarks.bench.engine.peers.plain import LEARNING_RATE, plain_round
from torch.nn import functional

from subbit.core.randomness import torch_randomness
from subbit.models.load_model import load_classifier
from subbit.models.select import select_parameters
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.engines import InProcess


@torch_randomness(0)
def test_plain_round_is_federated_averaging() -> None:
    """One step on all data of both clients: w - rate * (g_1 + g_2) / 2."""
    model = torch.nn.Linear(3, 2)
    clients = [(torch.randn(4, 3), torch.randint(0, 2, (4,))) for _ in range(2)]
    expected = []
    for parameter in model.parameters():
        losses = [functional.cross_entropy(model(inputs), labels) for inputs, labels in clients]
        (gradient,) = torch.autograd.grad(sum(losses) / 2, [parameter])
        expected.append(parameter.detach() - LEARNING_RATE * gradient)
    plain_round(model, clients, participants=2, batch_size=4)
    for parameter, value in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value)


def test_rivals_have_the_same_networks() -> None:
    """Equal numbers of trained weights, and for the transformer, with its head, equal outputs."""
    assert sum(parameter.numel() for parameter in mlp().parameters()) == 266_610
    ours, theirs = load_classifier(VIT, CLASSES, key=0).eval(), VitClassifier(VIT_FOLDER).eval()
    theirs.head.load_state_dict(ours.get_submodule("head").state_dict())
    names = select_parameters(ours, VIT_JOB.select)
    trained = [parameter for parameter in theirs.parameters() if parameter.requires_grad]
    assert sum(map(torch.numel, trained)) == sum(ours.get_parameter(name).numel() for name in names)
    images = random_images(2, (3, 32, 32)).inputs
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(as_floats(images.numpy())), rtol=1e-3, atol=1e-4)


def test_limit_of_the_cache_runs_the_same_network() -> None:
    module, examples = load_classifier(VIT, CLASSES, key=0), random_images(3, (3, 32, 32))
    hidden = hidden_before(module, examples)
    with torch.no_grad():
        whole, suffix = module.eval()(examples.inputs), Suffix(copy.deepcopy(module)).eval()(hidden.inputs)
    torch.testing.assert_close(whole, suffix)


def test_evaluations_are_timed_in_turns_without_those_that_fill_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here an evaluation takes a second for each test example, ten times that at first, and one more in each turn."""
    clock, asked = [0.0], []

    def evaluate(engine: InProcess, orders: Sequence[EvaluationOrder]) -> None:
        (order,) = orders
        clock[0] += order.stop * (1 if order.stop in asked else 10) + len(asked) // 2
        asked.append(order.stop)

    monkeypatch.setattr(InProcess, "evaluate", evaluate)
    monkeypatch.setattr(cache, "process_time", lambda: clock[0])
    module, train = load_classifier(VIT, CLASSES, key=0), random_images(4, (3, 32, 32))
    values = {"method": "fedavg", "select": "head", "head": "keep", "clients": 2}
    jobs = {str(tests): (problem_of(module, train, 2, train.select(np.arange(tests))), values) for tests in (2, 4)}
    assert cache.best_evaluations(jobs, turns=3) == {"2": 3.0, "4": 5.0}
    assert asked == [2, 4] * 4
