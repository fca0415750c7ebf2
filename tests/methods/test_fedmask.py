"""FedMask: structures, overlap, real values, bits; against hand-derived numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from subbit.aggregate.overlap import Overlap
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.randomness import torch_generator, torch_randomness
from subbit.data import Examples
from subbit.methods.fedmask import FedMask
from subbit.methods.fedmask_exchange import View
from subbit.methods.method import Turn
from subbit.models.small import CharLstm
from subbit.runtime.problem import Problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, settings

WEIGHTS, HEAD = 64 * 16 + 16 * 10, 160  # Of the test's 64-16-10 network.


def method_of(problem: Problem | None = None, **values: Any) -> FedMask:
    method = Workplace(problem or digits_problem(), settings(method="fedmask", **values)).method("main")
    assert isinstance(method, FedMask)
    return method


def first_view(method: FedMask) -> View:
    return method.open(method.broadcast(method.start(), 0), 0)


def random_bits(count: int, key: int) -> np.ndarray:
    return (torch.rand(count, generator=torch_generator(key)) < 0.5).numpy()


# Structures.


def test_a_pruned_element_never_comes_back() -> None:
    """Whatever the broadcast says: here that everybody else holds every element, with ones."""
    problem = digits_problem()
    method = method_of(problem, keep_rate=0.25, learning_rate=1.0, epochs=3)
    memory: dict[str, Any] = {}
    view = first_view(method)
    for number in range(4):
        method.train(view, problem.client_data(0), Turn(number, 0, memory))
        structure = method.map.structure(memory["structure"])
        assert np.count_nonzero(structure) == WEIGHTS - HEAD + HEAD // 4
        assert not unpack_bits(memory["mask"], WEIGHTS)[~structure].any()
        everybody = np.full(WEIGHTS, 3, dtype=np.uint16)
        view = View(Overlap(everybody, everybody), None)
    for evaluation in ("trained", "merged"):
        other = method_of(problem, keep_rate=0.25, evaluation=evaluation)
        other.personalise(view, problem.client_data(0), Turn(4, 0, memory))
        written = other.task.flat.weights.numpy()[other.map.masked]
        assert not written[~structure].any()
        assert written[structure].any()


def test_clients_prune_for_their_own_classes() -> None:
    """A head that keeps a fifth of its elements, by what training moved: more of each class it saw than of the others,
    which training moves too, down."""
    labels = digits_problem().train.labels.numpy()
    problem = digits_problem(parts=[np.flatnonzero((labels == 3) | (labels == 8))])
    method = method_of(problem, clients=1, pruned_layers=1, saliency="change", optimizer="sgd", learning_rate=10.0)
    memory: dict[str, Any] = {}
    method.train(first_view(method), problem.client_data(0), Turn(0, 0, memory))
    rows = method.map.structure(memory["structure"])[-HEAD:].reshape(10, 16).sum(axis=1)
    assert rows.sum() == HEAD // 5
    assert rows[[3, 8]].mean() > 1.5 * np.delete(rows, [3, 8]).mean()


def test_when_a_client_prunes_makes_no_difference() -> None:
    """As if all had pruned before the first round, from the mask of ones: other clients' masks do not enter."""
    problem = digits_problem()
    method = method_of(problem, keep_rate=0.25)
    late = View(Overlap(*(np.full(WEIGHTS, count, np.uint16) for count in (1, 3))), None)  # All decided: zeros.
    memories: list[dict[str, Any]] = [{}, {}]
    for memory, view, number in zip(memories, (first_view(method), late), (0, 5), strict=True):
        method.train(view, problem.client_data(0), Turn(number, 0, memory))
    assert np.array_equal(memories[0]["structure"], memories[1]["structure"])
    # Asked for its network before its first turn, it has pruned, too.
    method.personalise(first_view(method), problem.client_data(0), Turn(5, 0, {}))
    structure = method.map.structure(memories[0]["structure"])
    assert np.array_equal(method.task.flat.weights.numpy()[method.map.masked] != 0, structure)


def test_who_says_as_before_without_a_before_has_no_vote() -> None:
    method = method_of(keep_rate=0.25)
    mask = pack_bits(np.ones(method.map.structures.kept_elements, dtype=np.bool_))
    accumulator = method.accumulator()
    method.accumulate(accumulator, first_view(method), {"mask": mask, "structure": None}, 5, 0, client=1)
    assert not method.step(method.start(), accumulator, 0)["holders"].any()


def test_a_structure_with_too_many_elements_is_refused() -> None:
    method = method_of(keep_rate=0.25)
    mask = pack_bits(np.ones(method.map.structures.kept_elements, dtype=np.bool_))
    everything = pack_bits(np.ones(HEAD, dtype=np.bool_))
    with pytest.raises(PayloadError, match=r"needs \[40\]"):
        method.accumulate(
            method.accumulator(), first_view(method), {"mask": mask, "structure": everything}, 5, 0, client=1
        )


# Aggregation.


def test_a_round_of_the_server_by_hand() -> None:
    """Two clients hold the whole first layer and a quarter of the head each, of which they share ten elements."""
    method = method_of(keep_rate=0.25)
    accumulator, view = method.accumulator(), first_view(method)
    below = WEIGHTS - HEAD
    masks = [random_bits(below + 40, key) for key in (1, 2)]
    for client, first in enumerate((0, 30)):
        units = np.zeros(HEAD, dtype=np.bool_)
        units[first : first + 40] = True
        payloads = {"mask": pack_bits(masks[client]), "structure": pack_bits(units)}
        method.accumulate(accumulator, view, payloads, 5, 0, client)
    state = method.step(method.start(), accumulator, 0)
    assert state["holders"].tolist() == [2] * below + [1] * 30 + [2] * 10 + [1] * 30 + [0] * 90
    ones = np.zeros(WEIGHTS, dtype=int)
    ones[: below + 40] += masks[0]
    ones[:below] += masks[1][:below]
    ones[below + 30 : below + 70] += masks[1][below:]
    assert state["ones"].tolist() == ones.tolist()
    opened = method.open(method.broadcast(state, 1), 1).overlap
    own = random_bits(WEIGHTS, 3)
    assert np.array_equal(opened.merge(own), np.where(state["holders"] == 2, np.where(ones == 1, own, ones > 1), own))


def test_scores_start_between_plus_and_minus_score_where_the_mean_lies() -> None:
    """Four holders: 4, 3, 1, 0 ones start at c, c/2, -c/2, -c. A tie and a single holder keep the client's own bit."""
    method = method_of(aggregation="average", score=2.0, select="all: weights")
    ones, holders = np.zeros(WEIGHTS, dtype=np.uint16), np.zeros(WEIGHTS, dtype=np.uint16)
    ones[:6], holders[:6] = [4, 3, 1, 0, 2, 0], [4, 4, 4, 4, 4, 1]
    own = np.ones(WEIGHTS, dtype=np.bool_)
    own[4] = False
    start = method.exchange.trained(View(Overlap(ones, holders), None), {"mask": pack_bits(own)})
    assert start[:7].tolist() == [2, 1, -1, -2, -2, 2, 2]


# Real values.


def lstm_problem() -> Problem:
    with torch_randomness(5):
        module = CharLstm(11, 3, embedding=4, hidden=6, layers=1)
    letters = torch.randint(0, 11, (40, 7), generator=torch_generator(1))
    examples = Examples(letters, letters[:, -1] % 3)
    parts = tuple(np.array_split(np.arange(40), 2))
    return Problem(module, examples, parts, examples, 3, False, "lstm", "letters")


def test_the_output_gate_of_an_lstm_is_trained_and_stays_with_the_client() -> None:
    """Hidden size 6: the gate is 6 of 24 rows, 6 * (4 + 6) of the 240 weights of the LSTM. It is not sent."""
    problem = lstm_problem()
    method = method_of(problem, clients=2, select="all: weights", pruned_layers=0, learning_rate=0.5, real_rate=0.1)
    assert method.map.real.size == 60
    assert method.up_parts()[0].size == method.map.masked.size == 11 * 4 + 180 + 3 * 6
    memory: dict[str, Any] = {}
    update = method.train(first_view(method), problem.client_data(0), Turn(0, 0, memory))
    assert {part.name for part in method.up_parts()} == {"mask"}
    assert len(update.payloads["mask"]) == -(-method.map.masked.size // 8)
    assert np.abs(memory["real"]).max() > 0.1
    method.personalise(first_view(method), problem.client_data(0), Turn(1, 0, memory))
    gate = method.task.flat.module.get_parameter("lstm.weight_ih_l0").detach().numpy()[18:]
    before = problem.module.get_parameter("lstm.weight_ih_l0").detach().numpy()[18:]
    assert gate == pytest.approx(before + 0.1 * memory["real"][:24].reshape(6, 4), abs=1e-6)


def test_federated_real_values_cost_32_bits_and_are_averaged() -> None:
    problem = lstm_problem()
    values = {"clients": 2, "select": "all: weights", "pruned_layers": 0, "codec": "packed", "rounds": 3}
    local, federated = (
        run_job(problem, settings(method="fedmask", real_values=how, **values)).summary
        for how in ("local", "federated")
    )
    extra = (federated["uplink_bytes"] - local["uplink_bytes"]) / 6
    assert extra == HEADER_BYTES + 60 * 4, "in each of six uploads sixty floats"
    method = method_of(problem, real_values="federated", **values)
    accumulator, view = method.accumulator(), first_view(method)
    mask = pack_bits(np.ones(method.map.masked.size, dtype=np.bool_))
    for client, (value, examples) in enumerate([(1.0, 1), (4.0, 2)]):
        real = np.full(60, value, dtype=np.float32)
        method.accumulate(accumulator, view, {"mask": mask, "real": real}, examples, 0, client)
    assert method.step(method.start(), accumulator, 0)["real"].tolist() == [3.0] * 60


def test_a_mask_needs_weights() -> None:
    with pytest.raises(ConfigError, match="all: weights"):
        method_of(select="all: biases")


@pytest.mark.parametrize("codec", ["context", "near", "range-prior", "bfuse", "eden"])
def test_a_codec_that_needs_a_shared_draw_or_loses_bits_is_refused(codec: str) -> None:
    with pytest.raises(ConfigError, match=f"codec='{codec}'"):
        settings(method="fedmask", codec=codec)


def test_pruning_is_a_table_of_its_own() -> None:
    assert settings(method="fedmask", pruning={"keep_rate": 0.5}) == settings(method="fedmask", keep_rate=0.5)


# What it costs.


def test_the_papers_upload_is_one_bit_for_each_weight() -> None:
    """And the structure once. Frames and codec headers are some bytes each."""
    summary = run_job(
        digits_problem(), settings(method="fedmask", preset="paper", rounds=4, select="all: weights")
    ).summary
    bits = 8 * summary["uplink_bytes"] / (3 * 4)
    assert WEIGHTS <= bits <= WEIGHTS + HEAD / 4 + 8 * 64


def test_inside_the_structure_it_is_less() -> None:
    """Of the head a tenth."""
    values = {"codec": "packed", "select": "all: weights", "keep_rate": 0.1}
    method = method_of(**values)
    assert method.up_parts()[0].size == WEIGHTS - HEAD + HEAD // 10
    dense = method_of(communication="dense", **values)
    assert dense.up_parts()[0].size == WEIGHTS
