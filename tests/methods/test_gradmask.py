"""Gradient masks: what may change, what goes up, what the server makes of it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from subbit.codecs import Shared
from subbit.codecs.packed import unpack_bits
from subbit.config.resolve import read_toml
from subbit.core.errors import ConfigError, PayloadError
from subbit.methods.gradmask import GradMask
from subbit.methods.gradmask_masks import Scene
from subbit.methods.method import Turn, Update
from subbit.report.compare import contender_settings, parse_contender
from subbit.runtime.messages import decode_parts, encode_parts
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up
from subbit.wire.frame import HEADER_BYTES
from tests.problems import conv_net, digits_problem, mlp, settings

ROOT = Path(__file__).parent.parent.parent
SIZE, ACTIVE = 1210, 363
"""Of the MLP 64-16-10: 64 * 16 + 16 + 16 * 10 + 10 weights, and 0.3 of them."""
MASKS = ["random", "least-sensitive", "most-sensitive", "lowest-magnitude", "highest-magnitude"]
SENSITIVE = ["least-sensitive", "most-sensitive"]
OUT_OF_RANGE = {"calibration_rounds": 0, "calibration_examples": 0, "damping": 2.0}


def made(**values: Any) -> GradMask:
    method = Workplace(digits_problem(), settings(method="gradmask", **values)).method("main")
    assert isinstance(method, GradMask)
    return method


def turn_of(method: GradMask, client: int = 1, number: int = 0, state: Any = None) -> tuple[dict[str, Any], Update]:
    view = method.open(method.broadcast(state or method.start(), number), number)
    return view, method.train(view, digits_problem().client_data(client), Turn(number, client, {}))


def received(method: GradMask, view: Any, update: Update, client: int = 1, number: int = 0) -> tuple[np.ndarray, int]:
    """The change as the server adds it, after encoding and decoding, and the bytes that it took."""
    where = up(number, client)
    frames = encode_parts(method, "main", where, update.payloads, view, update.examples)
    payloads, examples = decode_parts(method, "main", where, frames, view)
    accumulator = method.accumulator()
    method.accumulate(accumulator, view, payloads, examples, number, client)
    return np.asarray(accumulator.mean())[:SIZE], sum(map(len, frames))


# What may change.


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("policy", ["none", "buffer", "update"])
def test_in_a_round_exactly_k_places_may_change_and_all_others_keep_their_bits(mask: str, policy: str) -> None:
    """One mask for the round: every policy, the paper's too, freezes the other 847 places, weight decay included."""
    few = {"calibration_examples": 20} if mask in SENSITIVE else {}
    method = made(mask=mask, mask_momentum=policy, epochs=3, batch_size=16, weight_decay=0.1, **few)
    view, update = turn_of(method)
    assert 0 < round(update.observations["changed"] * SIZE) <= ACTIVE
    if not method.parameters.mask.tells_places:
        assert np.count_nonzero(method.sent_places(view, 0, 1)) == ACTIVE


class Recorded:
    """The weights at the start of every epoch, and the mask under which it then runs."""

    def __init__(self, method: GradMask, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights: list[np.ndarray] = []
        self.frozen: list[np.ndarray] = []
        choose = method._frozen

        def record(weights: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
            frozen = choose(weights, *rest, **named)
            self.weights.append(weights.numpy().copy())
            self.frozen.append(frozen.numpy().copy())
            return frozen

        monkeypatch.setattr(method, "_frozen", record)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("policy", ["buffer", "update"])
def test_in_an_epoch_frozen_weights_stay_bit_identical(mask: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = made(mask=mask, mask_every="epoch", mask_momentum=policy, epochs=3, weight_decay=0.1, batch_size=16)
    recorded = Recorded(method, monkeypatch)
    _, update = turn_of(method)
    assert len(recorded.frozen) == 3
    for epoch in (0, 1):
        before, after = recorded.weights[epoch], recorded.weights[epoch + 1]
        frozen = recorded.frozen[epoch]
        assert np.count_nonzero(~frozen) == ACTIVE
        assert np.array_equal(before[frozen].view(np.uint32), after[frozen].view(np.uint32))
        assert (before[~frozen] != after[~frozen]).any()
    assert update.observations["changed"] > 0


def test_the_paper_s_momentum_moves_weights_that_have_just_been_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    method = made(mask_every="epoch", mask_momentum="none", epochs=2, batch_size=16)
    recorded = Recorded(method, monkeypatch)
    view, update = turn_of(method)
    final = view["weights"].copy()
    final[method.sent_places(view, 0, 1)] += update.payloads["weights"]
    halted = ~recorded.frozen[0] & recorded.frozen[1]
    assert halted.any()
    assert np.abs(final[halted] - recorded.weights[1][halted]).max() > 1e-4


def test_random_masks_are_those_of_a_key_of_seed_round_and_client() -> None:
    method = made()
    view = method.start()
    first = method.sent_places(view, 0, 1)
    assert np.array_equal(first, made().sent_places(view, 0, 1))
    for other in (method.sent_places(view, 1, 1), method.sent_places(view, 0, 2), made(seed=1).sent_places(view, 0, 1)):
        # Two masks of a share 0.3 agree in 0.09 of 1210 places, 109, give or take 8.7 (hypergeometric).
        assert 109 - 45 < np.count_nonzero(first & other) < 109 + 45
    everybody = made(mask_scope="global")
    assert np.array_equal(everybody.sent_places(view, 0, 1), everybody.sent_places(view, 0, 2))


def test_masks_of_all_epochs_together_go_up() -> None:
    """Each place is in none of four masks with chance 0.7^4: 0.76 of 1210 are expected in one, give or take 15."""
    method = made(mask_every="epoch", epochs=4)
    _, update = turn_of(method)
    assert abs(update.payloads["weights"].size - (1 - 0.7**4) * SIZE) < 75


@pytest.mark.parametrize(("mask", "expected"), [("lowest-magnitude", [0, 3]), ("highest-magnitude", [1, 2])])
def test_magnitudes_are_those_of_the_broadcast(mask: str, expected: list[int]) -> None:
    """|w| is 2, 7, 5, 2 and 4 at the first places, the rest between: the two lowest, or the two highest."""
    method = made(mask=mask, active_fraction=2 / SIZE)
    weights = np.full(SIZE, 3.0, dtype=np.float32)
    weights[:5] = [-2.0, 7.0, -5.0, 2.0, 4.0]
    assert np.flatnonzero(method.sent_places({"weights": weights}, 0, 0)).tolist() == expected


# What goes up.


@pytest.mark.parametrize("mask", ["random", "lowest-magnitude", "highest-magnitude"])
def test_a_mask_that_both_sides_know_costs_nothing(mask: str) -> None:
    """363 float32 and a header: 9.6 bits for each of 1210 places, and 40 bytes."""
    method = made(mask=mask)
    view, update = turn_of(method)
    _, size = received(method, view, update)
    assert size == 4 * ACTIVE + HEADER_BYTES


@pytest.mark.parametrize("mask", SENSITIVE)
def test_a_client_s_own_mask_goes_up_with_the_values_for_less_than_a_bit_a_place(mask: str) -> None:
    """H(0.3) = 0.881 bits a place, and the code is at most some percent above."""
    method = made(mask=mask)
    view, update = turn_of(method)
    change, size = received(method, view, update)
    places = size - 4 * ACTIVE - HEADER_BYTES
    assert 0.8 * SIZE / 8 < places < 0.96 * SIZE / 8
    assert np.array_equal(change.astype(np.float32), update.payloads["weights"])


@pytest.mark.parametrize(
    "values",
    [
        {"mask": "random"},
        {"mask": "random", "mask_every": "epoch"},
        {"mask": "random", "send": "all"},
        {"mask": "least-sensitive"},
        {"mask": "least-sensitive", "mask_every": "epoch"},
        {"mask": "highest-magnitude"},
        {"mask": "highest-magnitude", "mask_every": "epoch"},
    ],
)
def test_the_server_adds_the_change_that_the_client_made(values: dict[str, Any]) -> None:
    """Whatever is sent and however: the same training with send=all, which sends the whole vector, is the oracle."""
    values = {"epochs": 2, "batch_size": 16, **values}
    changes = []
    for send in (values.get("send", "active"), "all"):
        method = made(**{**values, "send": send})
        view, update = turn_of(method)
        changes.append(received(method, view, update)[0])
    assert np.count_nonzero(changes[0]) > 0
    assert np.array_equal(changes[0], changes[1])


def test_values_may_be_compressed_where_both_sides_know_the_mask() -> None:
    method = made(codec="eden", bits=1.0)
    view, update = turn_of(method)
    change, size = received(method, view, update)
    assert size < 4 * ACTIVE / 8
    assert not change[~method.sent_places(view, 0, 1)].any()


def test_running_statistics_travel_beside_the_values() -> None:
    problem = digits_problem(conv_net())
    for values in ({}, {"mask": "least-sensitive"}, {"mask": "least-sensitive", "mask_scope": "global"}):
        chosen = settings(method="gradmask", batchnorm="average", rounds=3, **values)
        assert run_job(problem, chosen).summary["failed_clients"] == 0


@limits(max_examples=20, deadline=None)
@given(damage=st.integers(0, 10_000), value=st.integers(0, 255))
def test_hostile_bytes_never_reach_the_sum_in_another_shape(damage: int, value: int) -> None:
    """A frame whose payload was changed and whose checksum was made right again: refused, or k places and values."""
    method = made(mask="least-sensitive")
    part = method.up_parts()[0]
    rng = np.random.default_rng(0)
    vector = np.where(rng.random(SIZE) < 0.3, rng.normal(size=SIZE), 0).astype(np.float32)
    data = bytearray(part.codec.encode(vector, Shared(SIZE)))
    data[damage % len(data)] = value
    try:
        decoded = part.codec.decode(bytes(data), Shared(SIZE))
    except PayloadError:
        return
    method.accumulate(method.accumulator(), {}, {"weights": decoded}, 1, 0, 1)


# One mask of sensitivities for everybody.


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_global_mask_is_chosen_by_the_mean_of_the_clients_sensitivities(rounds: int) -> None:
    """With equal numbers of examples the mean of the clients' Fisher information is that of the pooled data."""
    method = made(
        mask="least-sensitive", mask_scope="global", calibration_rounds=rounds, calibration_examples=None, rounds=3
    )
    problem, state = digits_problem(), method.start()
    weights = np.asarray(state["weights"]).copy()
    for number in range(rounds):
        view, accumulator = method.open(method.broadcast(state, number), number), method.accumulator()
        for client in range(3):
            update = method.train(view, problem.client_data(client), Turn(number, client, {}))
            assert update.payloads["weights"].size == 0
            method.accumulate(accumulator, view, update.payloads, update.examples, number, client)
        state = method.step(state, accumulator, number)
    assert method.calibration is not None
    pooled = method.calibration.choose(Scene(method.task.flat, weights, 0.3, key=0, data=problem.train))
    chosen = unpack_bits(np.asarray(state["mask"]), SIZE)
    assert np.array_equal(state["weights"], weights)
    assert np.count_nonzero(chosen) == ACTIVE
    # Sums of the same squares in another order: places at the edge may differ, and here at most one does.
    assert np.count_nonzero(chosen != pooled) <= 2
    view, update = turn_of(method, number=rounds, state=state)
    change, size = received(method, view, update, number=rounds)
    assert not change[~chosen].any()
    assert size == 4 * ACTIVE + 2 * HEADER_BYTES  # The frame of sensitivities is empty now.


def test_the_rounds_of_calibration_are_in_the_bytes() -> None:
    """Round 0: 1210 sensitivities of each client up, and a mask of ones down. Round 1: 363 values."""
    chosen = settings(method="gradmask", mask="least-sensitive", mask_scope="global", rounds=2)
    summary = run_job(digits_problem(), chosen).summary
    assert summary["uplink_bytes"] == 3 * (4 * SIZE + 2 * HEADER_BYTES) + 3 * (4 * ACTIVE + 2 * HEADER_BYTES)
    down = summary["downlink_bytes"] / 6 - (4 * SIZE + 2 * HEADER_BYTES)
    assert 0 < down < SIZE / 8


# The server.


@pytest.mark.parametrize(("weighting", "expected"), [("examples", -0.5), ("clients", 0.0)])
def test_clients_weigh_by_examples_or_all_the_same(weighting: str, expected: float) -> None:
    """Changes +1 (1 example) and -1 (3 examples): (1 - 3) / 4 or (1 - 1) / 2."""
    method = made(send="all", weighting=weighting)
    accumulator, ones = method.accumulator(), np.ones(SIZE, dtype=np.float32)
    method.accumulate(accumulator, {}, {"weights": ones}, 1, 0, 0)
    method.accumulate(accumulator, {}, {"weights": -ones}, 3, 0, 1)
    assert np.allclose(accumulator.mean(), expected)


def test_with_every_weight_active_it_is_fedavg_by_sgd() -> None:
    common = {"optimizer": "sgd", "learning_rate": 0.05, "epochs": 2, "batch_size": 16, "weight_decay": 0.01}
    masked = run_job(digits_problem(), settings(method="gradmask", active_fraction=1.0, **common)).summary
    plain = run_job(digits_problem(), settings(method="fedavg", **common)).summary
    assert masked["model_sha256"] == plain["model_sha256"]
    assert masked["total_bytes"] == plain["total_bytes"]


def test_masks_of_their_own_shrink_the_mean_change_to_the_active_share() -> None:
    """One step without momentum: a place changes in 0.3 of the clients, so K masks of clients of the same data give
    0.3 of the unmasked change on average. Over 200 masks the factor has a standard error of about 0.002.
    """
    problem = digits_problem(mlp())
    one = {"learning_rate": 0.1, "momentum": 0.0, "batch_size": 1000}
    plain = Workplace(problem, settings(method="fedavg", optimizer="sgd", **one)).method("main")
    whole = plain.train(plain.broadcast(plain.start(), 0), problem.client_data(0), Turn(0, 0, {})).payloads["weights"]
    method = made(**one)
    view = method.start()
    mean = np.mean([np.where(method.sent_places(view, 0, client), whole, 0) for client in range(200)], axis=0)
    assert np.dot(mean, whole) / np.dot(whole, whole) == pytest.approx(0.3, abs=0.02)


# What does not go together.


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"active_fraction": 0.0}, "active_fraction=0.0"),
        ({"active_fraction": 1.5}, "active_fraction=1.5"),
        ({"optimizer": "adam"}, "optimizer"),
        *(({"mask": "least-sensitive", key: value}, f"{key}={value}") for key, value in OUT_OF_RANGE.items()),
        *(({key: 1}, f"unknown key '{key}'") for key in ("calibration_rounds", "fisher", "nesterov", "whole")),
        ({"mask": "least-sensitive", "mask_every": "epoch", "mask_scope": "global"}, "mask_scope=client"),
        ({"mask": "lowest-magnitude", "mask_every": "epoch", "mask_scope": "global"}, "mask_scope=client"),
        ({"aggregator": "median"}, "mask_scope=global"),
        ({"mask": "least-sensitive", "codec": "eden"}, "mask_scope=global"),
        ({"codec": "topk"}, "error_feedback=false"),
        ({"mask": "least-sensitive", "mask_scope": "global", "rounds": 1}, "none is left to train"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_with_a_way_out(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(**values)


def test_examples_that_are_normalised_together_have_no_gradient_of_their_own() -> None:
    with pytest.raises(ConfigError, match="fisher=batch"):
        Workplace(digits_problem(conv_net()), settings(method="gradmask", mask="least-sensitive", batchnorm="batch"))
    chosen = settings(method="gradmask", mask="least-sensitive", batchnorm="batch", fisher="batch", rounds=1)
    assert run_job(digits_problem(conv_net()), chosen).summary["failed_clients"] == 0


def test_the_control_of_the_benchmark_takes_as_small_a_step() -> None:
    contenders = runpy.run_path(str(ROOT / "benchmarks" / "gradmask.py"))["rows"](0.1)
    assert contenders["control: all weights, as small a step"] == "fedavg:learning_rate=0.03"


@pytest.mark.parametrize("split", ["iid", "2class", "starved"])
def test_every_contender_of_the_benchmark_has_settings_that_resolve(split: str) -> None:
    values = read_toml(ROOT / "experiments" / f"gradmask-{split}.toml")
    assert values["fedavg"]["learning_rate"] == values["gradmask"]["learning_rate"]
    rows = runpy.run_path(str(ROOT / "benchmarks" / "gradmask.py"))["rows"](values["fedavg"]["learning_rate"])
    contenders = [parse_contender(contender) for contender in rows.values()]
    for contender in contenders:
        assert contender_settings(contender, contenders, values, [], seed=0).run.method == contender.method
