"""Supermask: against a loop in plain autograd, and numbers derived by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from subbit.codecs.sampler import uniforms
from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key
from subbit.data.batches import batches
from subbit.methods.method import Turn
from subbit.methods.supermask import Supermask
from subbit.models import Template
from subbit.models.popup import RescaledMask, signed_weights
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings

EXAMPLES = 90


def alone(method: str, **values: Any) -> Workplace:
    """All the data with one client."""
    problem = digits_problem(mlp(), parts=[np.arange(EXAMPLES)])
    return Workplace(problem, settings(method=method, clients=1, **values))


def trained_scores(method: str, **values: Any) -> np.ndarray[Any, Any]:
    """Scores after all rounds of one client, which keeps its memory from turn to turn."""
    place = alone(method, **values)
    made, data, memory = place.method("main"), place.problem.client_data(0), {}
    state = made.start()
    for number in range(place.settings.run.rounds):
        view = made.open(made.broadcast(state, number), number)
        update = made.train(view, data, Turn(number, 0, memory))
        accumulator = made.accumulator()
        made.accumulate(accumulator, view, update.payloads, update.examples, number, 0)
        state = made.step(state, accumulator, number)
    return np.asarray(state["scores"])


@pytest.mark.parametrize("method", ["supermask", "edge-popup"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_rounds_of_one_epoch_end_where_one_round_of_as_many_epochs_does(method: str, optimizer: str) -> None:
    """Bit for bit: epochs are numbered over the run, and the optimiser's moments stay with the client."""
    values = {"batch_size": 32, "optimizer": optimizer, "learning_rate": 0.05}
    rounds, both, epochs = (trained_scores(method, rounds=count, epochs=4 // count, **values) for count in (4, 2, 1))
    assert not np.array_equal(rounds, alone(method).method("main").start()["scores"])
    assert np.array_equal(rounds, both)
    assert np.array_equal(rounds, epochs)


@pytest.mark.parametrize("method", ["supermask", "edge-popup"])
def test_the_moments_survive_the_engine_and_the_checkpoint_form_of_a_memory(method: str) -> None:
    """The same through frames, memories and the ledger: the whole job in two ways gives one model."""
    problem = digits_problem(mlp(), parts=[np.arange(EXAMPLES)])
    three, one = (
        run_job(problem, settings(method=method, clients=1, rounds=rounds, epochs=3 // rounds)).summary
        for rounds in (3, 1)
    )
    assert three["model_sha256"] == one["model_sha256"]


def test_training_is_that_of_a_plain_loop_with_the_straight_through_estimator() -> None:
    """mask = [u < theta] + theta - stop(theta), SGD with momentum: autograd and torch's optimiser do the rest.

    One round of warm-up: half of the learning rate in the first of the two."""
    values = {"optimizer": "sgd", "learning_rate": 50.0, "batch_size": 32}
    found = trained_scores("supermask", rounds=2, warmup_rounds=1, **values)
    data, network = digits_problem().train.select(np.arange(EXAMPLES)), mlp()
    frozen = [network[2].weight.detach().clone(), network[4].weight.detach().clone()]
    scores = [torch.zeros_like(weight, requires_grad=True) for weight in frozen]
    optimizer = torch.optim.SGD(scores, lr=50.0, momentum=0.9)
    for epoch in range(2):
        optimizer.param_groups[0]["lr"] = 25.0 if epoch == 0 else 50.0
        for step, chosen in enumerate(batches(EXAMPLES, 32, derive_key(0, "batches", epoch, 0, 0))):
            drawn = uniforms(derive_key(0, "training-draw", epoch, 0, step), 0, 64 * 16 + 16 * 10) / 2.0**32
            weights = []
            for score, weight, uniform in zip(scores, frozen, np.split(drawn, [64 * 16]), strict=True):
                theta = torch.sigmoid(score)
                bits = (torch.from_numpy(uniform).view(score.shape) < theta).float()
                weights.append(weight * (bits + theta - theta.detach()))
            batch = data.select(chosen)
            hidden = functional.relu(functional.linear(batch.inputs.flatten(1) / 255, weights[0], network[2].bias))
            loss = functional.cross_entropy(functional.linear(hidden, weights[1], network[4].bias), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    expected = torch.cat([score.detach().flatten() for score in scores]).numpy()
    assert np.abs(expected).max() > 0.1
    assert found == pytest.approx(expected, abs=2e-5)


def test_it_starts_at_one_half_and_masks_kernels_alone() -> None:
    method = alone("supermask").method("main")
    assert not np.any(method.start()["scores"])
    assert method.task.flat.template.names == ("2.weight", "4.weight")
    method.write_network(method.start(), "expected", 0)
    assert torch.equal(method.task.flat.weights, method.task.flat.initial / 2)
    assert alone("supermask", theta_init=0.75).method("main").start()["scores"][0] == pytest.approx(np.log(3))


def test_the_rescaled_mask_by_hand() -> None:
    """Scores of 20 and -20 are sure bits: (1, 1, 0, 0) of four weights makes the factor 2, (1, 0) of two makes it 2,
    and a tensor of which nothing is left stays zero. The gradient of a place is g w0 2 theta (1 - theta)."""
    template = Template(("a", "b", "c"), ((2, 2), (2,), (1,)))
    initial = torch.tensor([1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    mask, weights = RescaledMask(initial, template), torch.empty(7)
    scores = torch.tensor([20.0, 20.0, -20.0, -20.0, 20.0, -20.0, -20.0])
    for write in (lambda: mask.write(scores, weights, 5), lambda: mask.thresholded(scores, weights)):
        write()
        assert weights.tolist() == [2.0, -4.0, 0.0, 0.0, 10.0, 0.0, 0.0]
    undecided, gradient = torch.zeros(7), torch.empty(7)
    mask.pull_back(torch.ones(7), undecided, gradient)
    assert gradient[:6].tolist() == pytest.approx([0.5, -1.0, 1.5, 2.0, 2.5, 3.0])
    # All probabilities alike, the rescaled mean of all masked networks is the network without a mask.
    mask.expected(undecided, weights)
    assert torch.equal(weights, initial)


def test_signed_weights_by_hand() -> None:
    """1 and -3 have mean -1 and deviation 2; sqrt(2 / 2) = 1 for a fan-in of 2, sqrt(2) where half of it is kept."""
    template, initial = Template(("a",), ((1, 2),)), torch.tensor([1.0, -3.0])
    assert signed_weights(initial, template, "deviation").tolist() == [2.0, -2.0]
    assert signed_weights(initial, template, "fan-in").tolist() == [1.0, -1.0]
    assert signed_weights(initial, template, "fan-in", 0.5).tolist() == pytest.approx([2**0.5, -(2**0.5)])
    assert signed_weights(initial, template, "fan-in", gain=math.e).tolist() == pytest.approx(
        [math.e / 2**0.5, -math.e / 2**0.5]
    )
    assert initial.tolist() == [1.0, -3.0]


def test_biases_have_no_fan_in_and_stay() -> None:
    template, initial = Template(("weight", "bias"), ((1, 2), (1,))), torch.tensor([1.0, -3.0, 0.25])
    assert signed_weights(initial, template, "fan-in").tolist() == [1.0, -1.0, 0.25]


def test_the_best_mask_is_the_one_with_the_most_right_answers_on_the_training_data() -> None:
    place = alone("supermask", rounds=1, epochs=4, best_of=7)
    method, data = place.method("main"), place.problem.client_data(0)
    assert isinstance(method, Supermask)
    view = method.open(method.broadcast(method.start(), 0), 0)
    update = method.train(view, data, Turn(0, 0, {}))
    shares = update.payloads["candidates"]
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, update.payloads, update.examples, 0, 0)
    state = method.step(method.start(), accumulator, 0)
    best = max(range(7), key=lambda candidate: shares[candidate])  # The first of the best, as everywhere.
    assert state["best"] == best
    assert len(set(shares.tolist())) > 1
    method.write_network(state, "best", 123)
    place.method("main").task.flat.evaluation_mode()
    with torch.no_grad():
        right = place.module(data.inputs).argmax(1) == data.labels
    assert right.float().mean().item() == pytest.approx(shares[best])


def test_candidates_are_judged_in_the_last_round_alone() -> None:
    place = alone("supermask", rounds=2)
    method, data, memory = place.method("main"), place.problem.client_data(0), {}
    view = method.open(method.broadcast(method.start(), 0), 0)
    assert not method.train(view, data, Turn(0, 0, memory)).payloads["candidates"].any()
    assert method.train(view, data, Turn(1, 0, memory)).payloads["candidates"].any()


def test_several_clients_are_averaged_by_their_examples() -> None:
    """Scores 4 with weight 1 and 0 with weight 3: mean 1. Candidates (.9, .5) and (.1, .5): (.3, .5), the second."""
    method = alone("supermask", best_of=2).method("main")
    accumulator = method.accumulator()
    for value, shares, examples in ((4.0, [0.9, 0.5], 1), (0.0, [0.1, 0.5], 3)):
        payloads = {"scores": np.full(method.size, value, np.float32), "candidates": np.array(shares, np.float32)}
        method.accumulate(accumulator, None, payloads, examples, 0, 0)
    state = method.step(method.start(), accumulator, 0)
    assert np.array_equal(state["scores"], np.ones(method.size, np.float32))
    assert state["best"] == 1


@pytest.mark.parametrize("method", ["supermask", "edge-popup"])
def test_clients_that_claim_no_examples_change_nothing(method: str) -> None:
    made = alone(method).method("main")
    accumulator, state = made.accumulator(), made.start()
    payloads = {part.name: np.ones(part.size, np.float32) for part in made.up_parts()}
    made.accumulate(accumulator, None, payloads, 0, 0, 0)
    assert np.array_equal(made.step(state, accumulator, 0)["scores"], state["scores"])


@pytest.mark.parametrize("values", [{"theta_init": 1.0}, {"theta_init": 0.0}, {"best_of": 0}, {"best_of": 10**6}])
def test_values_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        settings(method="supermask", **values)
