"""Compression of the messages of any Flower app: both halves together. The way down is in test_compress_down.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, Strategy

from subbit.codecs import make_codec
from subbit.core.errors import ConfigError, ModelError
from subbit.flower import compress
from subbit.flower.compression import RESIDUAL
from subbit.flower.layout import Layout
from tests.flower.loopback import (
    CODED,
    NODES,
    PLAIN,
    Arrays,
    Loopback,
    as_record,
    client_app,
    one_round,
    run,
    start_arrays,
    trained,
)

pytestmark = pytest.mark.usefixtures("a_run")


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, lambda: FedProx(proximal_mu=0.1)])
@pytest.mark.parametrize("updates", [False, True])
def test_with_an_exact_codec_nothing_changes(kind: Callable[[], Strategy], updates: bool) -> None:
    """float32 carries a change with relative error 2^-24: after two rounds the models agree to that."""
    plain, _ = run(kind(), Loopback(client_app(updates=updates)))
    made = compress(codec="dense", sends="updates" if updates else "weights")
    compressed, _ = run(made.strategy(kind()), Loopback(client_app(made, updates=updates)))
    assert list(plain) == list(compressed)
    for name in plain:
        tolerance = 2e-3 if name == "layer.half" else 1e-5
        assert plain[name].dtype == compressed[name].dtype
        assert plain[name].shape == compressed[name].shape
        assert np.allclose(plain[name], compressed[name], rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize(
    ("codec", "options", "error"),
    [
        ("dense", {"dtype": "float16"}, 0.001),
        ("dense", {"dtype": "bfloat16"}, 0.004),
        ("int8", {}, 0.02),
        ("eden", {"bits": 4}, 0.11),
        ("eden", {"bits": 1}, 0.8),
        ("eden", {"bits": 0.5}, 1.6),
        ("drive", {}, 0.8),
        ("qsgd", {"levels": 16}, 1.61),
        ("topk", {"fraction": 0.5}, 0.4),
        ("fedcode", {}, 0.1),
    ],
)
def test_every_codec_of_vectors_brings_the_change_within_its_error(
    codec: str, options: dict[str, Any], error: float
) -> None:
    """Relative error |decoded - change| / |change|: sqrt(pi / 2 - 1) = 0.756 at one bit, 1.46 at half a bit, where
    |estimate|^2 / |x|^2 = 1 / (0.5 * 2 / pi) = 3.14; sqrt(sqrt(1715) / 16) = 1.61 bounds QSGD. Half precision adds
    2^-11 of the weights themselves.
    """
    made, before = compress(codec=codec, **options), start_arrays()
    found, _, _ = one_round(made, Loopback(client_app(made)))
    assert set(found) == set(NODES)
    for node, arrays in found.items():
        wanted = trained(before, node, 1)
        assert list(arrays) == list(before)
        change, missed = flat(wanted) - flat(before), flat(wanted) - flat(arrays)
        assert np.linalg.norm(missed) <= error * np.linalg.norm(change) + 2e-4 * np.linalg.norm(flat(before))
        for name in PLAIN:
            assert np.array_equal(arrays[name], wanted[name])
            assert arrays[name].dtype == wanted[name].dtype


def flat(arrays: Arrays) -> np.ndarray:
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in CODED])


def test_the_errors_of_two_clients_and_of_two_rounds_are_independent() -> None:
    """Same change, other key: an unbiased codec averages out only if senders rotate differently."""
    made, layout = compress(codec="eden", bits=1), Layout.of(as_record(start_arrays()), PLAIN)
    vector = np.random.default_rng(0).normal(size=layout.template.size).astype(np.float32)
    errors = []
    for round_number, node in ((1, 7), (1, 8), (2, 7)):
        frame = made._encode(vector, layout, round_number, node, None)  # type: ignore[arg-type]
        errors.append(made.decode(frame, layout, round_number, node) - vector)
    correlations = np.corrcoef(errors)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 0.1  # Standard deviation 1 / sqrt(1715) = 0.024 if independent.


def test_metrics_say_what_was_saved() -> None:
    """1715 coded values: 1715 bits are 215 bytes, a scale of 4 and a header of 40 bytes for each block and frame."""
    made = compress(codec="eden", bits=1)
    _, result = run(made.strategy(FedAvg()), Loopback(client_app(made)))
    rest = as_record({name: start_arrays()[name] for name in PLAIN}).count_bytes()
    for metrics in result.train_metrics_clientapp.values():
        assert metrics["loss"] == pytest.approx(1.0)  # The app's own metrics are still there.
        assert metrics["subbit-bad-frames"] == 0
        beside = 60  # Names and numbers in our record.
        assert 3 * (215 + 4 + 40 + rest) <= metrics["subbit-up-bytes-after"] <= 3 * (215 + 40 + 40 + rest + beside)
    before = result.train_metrics_clientapp[1]["subbit-up-bytes-before"]
    assert before == 3 * as_record(start_arrays()).count_bytes()


def test_error_feedback_sends_later_what_it_left_out() -> None:
    """A quarter of the same change in each of 8 rounds: with feedback every value arrives, and what has not arrived
    yet is the residual; without it the smaller three quarters never do.
    """
    layout = Layout({"weight": np.zeros(100)}, ("weight",))
    vector = np.linspace(1, 2, 100, dtype=np.float32)
    for feedback, never in ((True, 0), (False, 75)):
        made = compress(codec="topk", fraction=0.25, error_feedback=feedback)
        state, arrived = RecordDict(), np.zeros(100)
        for round_number in range(1, 9):
            frame = made._encode(vector, layout, round_number, 7, state)
            arrived += made.decode(frame, layout, round_number, 7)
        assert np.count_nonzero(arrived == 0) == never
        assert (RESIDUAL in state) == feedback
        if feedback:
            residual = next(iter(state.array_records[RESIDUAL].values())).numpy()
            assert np.allclose(arrived + residual, 8 * vector, rtol=1e-5)


def test_the_residual_lives_in_the_state_of_the_node_and_of_one_model() -> None:
    made = compress(codec="topk", fraction=0.1, error_feedback=True)
    grid = Loopback(client_app(made))
    run(made.strategy(FedAvg()), grid)
    residuals = [next(iter(grid.contexts[node].state.array_records[RESIDUAL].values())).numpy() for node in NODES]
    assert all(residual.shape == (1715,) and np.abs(residual).max() > 0 for residual in residuals)
    assert not np.array_equal(residuals[0], residuals[1])
    state = grid.contexts[7].state
    made._encode(np.zeros(4, np.float32), Layout({"other": np.zeros(4)}, ("other",)), 1, 7, state)
    assert next(iter(state.array_records[RESIDUAL].values())).numpy().tolist() == [0, 0, 0, 0]


def test_the_wrapped_strategy_stays_what_it_was() -> None:
    class Saving(FedAvg):
        saved = 0

        def start(self, *arguments: Any, **options: Any) -> Any:
            self.saved += 1
            return super().start(*arguments, **options)

    made, original = compress(codec="dense"), Saving(min_train_nodes=3)
    strategy = made.strategy(original)
    run(strategy, Loopback(client_app(made)))
    assert isinstance(strategy, Saving)
    assert (strategy.saved, strategy.min_train_nodes, original.saved) == (1, 3, 0)
    with pytest.raises(ConfigError, match="compressed already"):
        made.strategy(strategy)
    with pytest.raises(ConfigError, match="is not a strategy"):
        made.strategy("FedAvg")  # type: ignore[type-var]


def test_two_sides_that_disagree_say_so() -> None:
    grid = Loopback(client_app(compress(codec="eden", bits=2)))
    found, _, _ = one_round(compress(codec="eden", bits=1), grid)
    assert found == {}
    assert "expects Eden(bits=1) of weights; down Eden(bits=1)" in grid.errors[0]
    assert "the mod of this client is Eden(bits=2) of weights; down Eden(bits=2)" in grid.errors[0]


def test_a_mod_that_is_not_asked_changes_nothing() -> None:
    plain, _ = run(FedAvg(), Loopback(client_app()))
    ready, _ = run(FedAvg(), Loopback(client_app(compress())))
    assert all(np.array_equal(plain[name], ready[name]) for name in plain)


def test_a_strategy_whose_clients_have_no_mod_says_so(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").addHandler(caplog.handler)
    found, metrics, strategy = one_round(compress(), Loopback(client_app()))
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert found == {}
    assert metrics["subbit-bad-frames"] == 3
    assert strategy.subbit.refused == {"not-a-frame": 3}
    assert "the ClientApp needs compress(...) among its mods" in caplog.text


def test_arguments_that_make_no_sense_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="carries bits; for arrays there are: dense"):
        compress(codec="packed")
    with pytest.raises(ConfigError, match="unknown codec 'edn': did you mean 'eden'"):
        compress(codec="edn")
    with pytest.raises(ConfigError, match="carries bits; for arrays there are: dense"):
        compress(down=make_codec("packed"))
    with pytest.raises(ConfigError, match="'eden' is not a codec"):
        compress(down="eden")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sends='deltas'"):
        compress(sends="deltas")  # type: ignore[arg-type]


def test_a_reply_with_other_arrays_than_arrived_is_an_error_of_the_client() -> None:
    layout = Layout.of(as_record({"a": np.zeros(2), "b": np.zeros(3)}), ())
    with pytest.raises(ModelError, match=r"\['b', 'c'\]"):
        layout.flatten(as_record({"a": np.zeros(2), "c": np.zeros(3)}), True)
    with pytest.raises(ModelError, match=r"arrived with shape \(3,\) and is sent back with \(4,\)"):
        layout.flatten(as_record({"a": np.zeros(2), "b": np.zeros(4)}), True)


def test_a_model_without_floats_travels_as_it_is() -> None:
    layout = Layout.of(as_record({"trees": np.arange(5, dtype=np.uint8)}), ())
    made, after = compress(), as_record({"trees": np.arange(1, 6, dtype=np.uint8)})
    frame = made._encode(layout.flatten(after, True), layout, 1, 7, None)  # type: ignore[arg-type]
    rebuilt = layout.rebuild(made.decode(frame, layout, 1, 7), layout.rest(after), True)
    assert isinstance(rebuilt, ArrayRecord)
    assert rebuilt["trees"].numpy().tolist() == [1, 2, 3, 4, 5]


def test_without_a_compressed_downlink_evaluation_is_left_alone() -> None:
    made, seen = compress(down=None), []

    def watch(message: Message, context: Any, call_next: Any) -> Message:
        seen.append((message.metadata.message_type, sorted(message.content)))
        return call_next(message, context)

    run(made.strategy(FedAvg()), Loopback(client_app(watch, made)), rounds=1)
    assert ("evaluate", ["arrays", "config"]) in seen
    assert ("train", ["arrays", "config", "subbit"]) in seen
