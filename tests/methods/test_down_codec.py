"""Weights that go down as compressed changes: nothing is lost for good, and everybody holds what the server thinks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from subbit.core.errors import ConfigError
from subbit.methods.method import Turn
from subbit.runtime.downlink import Broadcasts, make_downlink, receive
from subbit.runtime.engines import InProcess
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Order
from subbit.runtime.round import Cohort, ServerState, run_round
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from subbit.wire.ledger import Ledger
from tests.problems import conv_net, digits_problem, mlp, settings

PARTS = [np.arange(start, start + 40) for start in range(0, 240, 40)]
FEW = {"clients": 6, "participation": 0.34, "rounds": 6}
DOWN: dict[str, dict[str, Any]] = {
    "eden": {"down_codec": "eden"},
    "topk": {"down_codec": "topk", "down_fraction": 0.05},
    "ternary": {"down_codec": "ternary", "down_fraction": 0.05},
    "int8": {"down_codec": "int8"},
}


def test_whole_weights_are_no_change() -> None:
    method = Workplace(digits_problem(), settings(method="fedavg")).method("main")
    assert method.changes is None
    assert [part.name for part in method.down_parts()] == ["weights"]


def test_a_codec_that_loses_nothing_changes_nothing() -> None:
    """Top-k with all values is exact, so that receivers hold the server's weights but for the rounding of a sum."""
    whole = run_job(digits_problem(), settings(method="fedavg", rounds=3, learning_rate=0.01))
    change = {"down_codec": "topk", "down_fraction": 1.0}
    changes = run_job(digits_problem(), settings(method="fedavg", rounds=3, learning_rate=0.01, **change))
    found, expected = (torch.nn.utils.parameters_to_vector(run.module.parameters()) for run in (changes, whole))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("codec", DOWN)
def test_what_a_broadcast_lost_is_part_of_the_next_one(codec: str) -> None:
    """Weights that stay where they are: the difference to what receivers hold shrinks in every round.

    Of a fixed vector x, top-k of 5% leaves at most sqrt(0.95) |x|, EDEN at one bit about sqrt(1 - 2/pi) |x| times its
    correction of the bias, below 0.8 |x|. After 60 rounds that is little.
    """
    workplace = Workplace(digits_problem(mlp(64)), settings(method="fedavg", **DOWN[codec]))
    method = workplace.method("main")
    start = np.asarray(method.start()["weights"])
    state = {"weights": start + np.random.default_rng(0).standard_normal(start.size).astype(np.float32)}
    broadcasts, distances = Broadcasts(), []
    for number in range(60):
        downlink = make_downlink(method, "main", state, broadcasts, number)
        downlink.remember(broadcasts, ())
        assert broadcasts.held is not None
        distances.append(float(np.linalg.norm(state["weights"] - broadcasts.held["weights"])))
    assert distances[0] < np.linalg.norm(state["weights"] - start)
    assert distances[-1] < 0.1 * distances[0]


@pytest.mark.parametrize("method", ["fedavg", "fedpeft", "fedprox", "lg-fedavg", "gradmask"])
def test_clients_hold_what_the_server_thinks(method: str) -> None:
    """Two of six in a round: newcomers and those who were away end with the same bits, by frames or by snapshot."""
    selection = {} if method != "fedpeft" else {"tuning": "full"}
    workplace = Workplace(digits_problem(mlp(64), PARTS), settings(method=method, **FEW, **DOWN["topk"], **selection))
    main = workplace.method("main")
    state = ServerState("main", 0, main.start())
    for _ in range(4):
        report = run_round(main, state, InProcess(workplace, 1), Ledger(), Cohort(list(range(6)), 1.0))
        assert not report.failures
    assert state.broadcasts.held is not None
    for client, number in state.broadcasts.seen.items():
        if number == 3:
            held = workplace.memories.read(client, state.kept[client])["held-weights"]
            np.testing.assert_array_equal(held, state.broadcasts.held["weights"])
    assert not np.array_equal(state.broadcasts.held["weights"], np.asarray(state.method["weights"]))
    downlink = make_downlink(main, "main", state.method, state.broadcasts, 4)
    _, snapshot = downlink.missing(Broadcasts(state.broadcasts.held, {}, {}), 0)
    missed = tuple(state.broadcasts.recent[number] for number in range(4))
    order = Order("main", 4, 0, downlink.frames)
    pasts = replace(order, missed=missed), replace(order, snapshot=snapshot)
    views = [receive(main, with_past, {}) for with_past in pasts]
    np.testing.assert_array_equal(views[0]["weights"], views[1]["weights"])
    np.testing.assert_array_equal(views[0]["weights"], downlink.view["weights"])


def test_changes_count_from_what_the_client_holds() -> None:
    """A client with learning rate zero has moved by nothing, however far behind the server's weights it is."""
    job = settings(method="fedavg", learning_rate=0.0, **DOWN["topk"])
    workplace = Workplace(digits_problem(), job)
    method = workplace.method("main")
    behind = np.asarray(method.start()["weights"]) + 1.0
    update = method.train({"weights": behind}, workplace.problem.client_data(0), Turn(0, 0, {}))
    assert not update.payloads["weights"].any()


@pytest.mark.parametrize("down", DOWN)
def test_one_bit_both_ways(down: str) -> None:
    """All clients in all rounds: every broadcast is one frame, far shorter than 32 bits a weight."""
    job = settings(method="fedavg", codec="eden", rounds=3, **DOWN[down])
    result = run_job(digits_problem(mlp(64)), job).summary
    frames = result["participants"] * result["rounds"]
    whole = frames * (4 * result["parameters"] + HEADER_BYTES)
    assert result["uplink_bytes"] < whole / 16
    assert result["downlink_bytes"] < whole / 3.5
    assert result["codecs"]["down"] == [down]


def test_a_fitted_head_is_where_changes_start_from() -> None:
    """Through a codec that loses nothing, newcomers in every round end where whole weights would have brought them. If
    they had not been sent the head first, they would count changes from another one.
    """
    values = {"head": "probe", "head_epochs": 2, **FEW}
    lossless = {"down_codec": "topk", "down_fraction": 1.0}
    whole = run_job(digits_problem(mlp(64), PARTS), settings(method="fedavg", **values))
    changes = run_job(digits_problem(mlp(64), PARTS), settings(method="fedavg", **values, **lossless))
    found, expected = (torch.nn.utils.parameters_to_vector(run.module.parameters()) for run in (changes, whole))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert changes.summary["one_off_bytes"] > whole.summary["one_off_bytes"]


def test_running_statistics_travel_whole() -> None:
    job = settings(method="fedavg", batchnorm="average", rounds=2, **DOWN["eden"])
    result = run_job(digits_problem(conv_net()), job).summary
    assert not result["failures"]
    assert result["codecs"]["down"] == ["eden", "dense"]


def test_resuming_equals_an_uninterrupted_run_and_so_do_two_workers(tmp_path: Path) -> None:
    def job(name: str, **values: Any) -> Any:
        return settings(method="fedavg", codec="topk", folder=str(tmp_path), name=name, **FEW, **DOWN["eden"], **values)

    def stop_after_three(progress: Any) -> None:
        if progress.round_number == 2:
            raise KeyboardInterrupt

    problem = digits_problem(mlp(64), PARTS)
    whole = run_job(problem, job("whole")).summary
    folder = RunFolder.create(job("broken"), "")
    with pytest.raises(KeyboardInterrupt):
        run_job(problem, job("broken"), folder, report=stop_after_three)
    resumed = run_job(problem, job("broken"), folder, resume=True).summary
    both = run_job(problem, job("both", workers=2)).summary
    for found in (resumed, both):
        for name in ("model_sha256", "uplink_bytes", "downlink_bytes"):
            assert found[name] == whole[name]


@pytest.mark.parametrize("wrong", [{"down_codec": "zip"}, {"down_codec": "topk", "down_fraction": 0.0}])
def test_options_out_of_range_are_refused_before_the_first_round(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(method="fedavg", **wrong)


def test_the_start_is_a_copy() -> None:
    """Training writes into the module's buffers: what newcomers start from must not move with it."""
    method = Workplace(digits_problem(), settings(method="fedavg", **DOWN["topk"])).method("main")
    assert method.changes is not None
    first = method.changes.first()["weights"]
    with torch.no_grad():
        method.task.flat.initial.add_(1.0)
    assert not np.array_equal(first, method.changes.first()["weights"])


@pytest.mark.parametrize("bits", [0.1, 0.25, 0.5])
def test_few_bits_down_are_slow_and_not_a_divergence(bits: float) -> None:
    """Unbiased, EDEN at a quarter of a bit loses 5.3 times the square of what it sends, and loses more in every round:
    these weights ended 1e6 away in 15 rounds, and said nothing about it. What receivers hold must not run away from
    the server's weights, and what the run learns must be no accident (chance is 0.1)."""
    job = {"method": "fedpeft", "tuning": "full", "learning_rate": 0.01, "rounds": 15, "evaluate_every": 15}
    held = run_job(digits_problem(mlp(64)), settings(**job, down_codec="eden", down_bits=bits))
    whole = run_job(digits_problem(mlp(64)), settings(**job))
    longest = torch.nn.utils.parameters_to_vector(whole.module.parameters()).abs().max()
    assert torch.nn.utils.parameters_to_vector(held.module.parameters()).abs().max() < 2 * longest
    assert held.summary["accuracy"] > 0.5
