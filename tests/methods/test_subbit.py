"""The flagship: its budget in bytes, measured on frames; its arithmetic by hand; that it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from subbit.codecs.eden import Eden
from subbit.codecs.trellis import Trellis
from subbit.core.errors import ConfigError
from subbit.exchange.spending import Spending, missed_broadcasts
from subbit.export.runs import open_run
from subbit.maps.spans import VALUES_WITHOUT_CLASSES, most_values
from subbit.methods.subbit import MOST_IN_CODE, RATE_OF_RANDOM_WEIGHTS, Subbit
from subbit.objectives import find_objective
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, mlp, settings

PARTS = [np.arange(start, start + 40) for start in range(0, 240, 40)]


def made(**values: Any) -> Subbit:
    problem = digits_problem(mlp(64), PARTS)
    method = Workplace(problem, settings(method="subbit", clients=6, **values)).method("main")
    assert isinstance(method, Subbit)
    return method


def per_client_and_round(**values: Any) -> float:
    """Bytes of the main phase, from the frames of a real run."""
    problem = digits_problem(mlp(64), PARTS)
    summary = run_job(problem, settings(method="subbit", clients=6, **values)).summary
    return (summary["uplink_bytes"] + summary["downlink_bytes"]) / (summary["participants"] * summary["rounds"])


def test_the_length_of_a_round_by_hand() -> None:
    """800 values at one bit are 100 bytes, and 4 more for the scale of each block; a header has 40. One of two clients
    has missed one broadcast: half a frame more."""
    spending = Spending(Eden(bits=1.0), Eden(bits=1.0), {0: 1, 1: 1})
    blocks = Eden(bits=1.0).fixed_length(800) - 100
    assert spending.bytes(800) == 2.5 * (HEADER_BYTES + 100 + blocks)
    assert Spending(Eden(), Eden(), {1000: 1}).bytes(800) == 2 * (HEADER_BYTES + 100 + blocks) + HEADER_BYTES + 3200
    assert spending.most_values(int(spending.bytes(800)), 10_000) == 800
    assert spending.most_values(10**9, 123) == 123


def test_more_bits_once_every_weight_has_a_value_of_its_own() -> None:
    spending = Spending(Eden(bits=1.0), Eden(bits=1.0), {})
    two = Spending(Eden(bits=2.0), Eden(bits=2.0), {})
    assert spending.most_bits(int(two.bytes(800)), 800).up.bits == 2.0
    assert spending.most_bits(10**9, 800).up.bits == 8.0


@pytest.mark.parametrize("budget", [300, 700, 1500])
@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 4), (0.5, 4), (0.17, 20)])
def test_a_budget_is_met(budget: int, participation: float, rounds: int) -> None:
    """One of six in a round: some come back after so long that a snapshot is shorter than what they missed."""
    spent = per_client_and_round(bytes=budget, participation=participation, rounds=rounds, evaluate_every=rounds)
    assert 0.98 * budget <= spent <= budget


@pytest.mark.parametrize("budget", [700, 4_000])
def test_a_budget_is_met_with_the_trellis_code(budget: int) -> None:
    """With a value for every weight at the larger budget, and so with more than a bit for each."""
    spent = per_client_and_round(bytes=budget, codec="trellis", down_codec="trellis", memory=4, rounds=2)
    assert 0.98 * budget <= spent <= budget


@pytest.mark.parametrize("budget", [8_000, 30_000])
def test_a_budget_of_a_whole_run_is_met(budget: int) -> None:
    spent = per_client_and_round(run_bytes=budget, participation=0.5, rounds=6, evaluate_every=6) * 3 * 6
    assert 0.98 * budget <= spent <= budget


def test_a_budget_of_a_run_without_rounds_divides_by_nothing() -> None:
    assert run_job(digits_problem(mlp(64), PARTS), settings(method="subbit", run_bytes=5_000, rounds=0)).summary


def test_a_budget_for_the_whole_network_is_met_by_more_bits() -> None:
    method = made(bytes=4_000)
    assert method.map.size == sum(most_values(method.task, "random")), "the case is one with a value for each weight"
    codec = method.up_parts()[0].codec
    assert isinstance(codec, Trellis)
    assert codec.bits > 1
    assert 0.98 * 4_000 <= per_client_and_round(bytes=4_000, rounds=2) <= 4_000


def test_the_head_gets_a_third_or_all_it_can_use() -> None:
    method = made(bytes=400)
    body, head = most_values(method.task, "random")
    values, in_head = method.map.size, method.parameters.map.head_dimensions
    assert in_head == min(head, values // 3)
    assert method.parameters.map.dimensions == values - in_head <= body


def test_a_client_never_sends_more_than_two_kilobytes_by_default() -> None:
    """The most there is: 14,336 values and 1,024 of the head at one bit are 1,920 bytes, and a header has 40."""
    most = Eden(bits=1.0).fixed_length(VALUES_WITHOUT_CLASSES + 1_024) + HEADER_BYTES
    assert 1_960 <= most <= 2_000


def test_more_values_and_a_larger_rate_where_there_are_no_classes() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), *(torch.nn.Linear(64, 64) for _ in range(9)))
    problem = replace(digits_problem(module, PARTS), pretrained=True)
    method = Workplace(problem, settings(method="subbit", clients=6)).method("main")
    texts = Subbit(settings(method="subbit").parameters, replace(method.task, objective=find_objective("language")))
    assert [each.map.moves for each in (method, texts)] == [8_192 + 1_024, 14_336 + 1_024]
    assert [each.trainer.local.rate for each in (method, texts)] == [0.0025, 0.01]
    assert [each.trainer.local.schedule for each in (method, texts)] == ["cosine", "constant"]


def test_random_weights_are_trained_themselves() -> None:
    """64 * 300 + 300 weights outside the head and 300 * 10 + 10 in it, at one bit each both ways."""
    wide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))
    chosen = settings(method="subbit", clients=6)
    random, trained = (
        Workplace(replace(digits_problem(wide, PARTS), pretrained=pretrained), chosen).method("main")
        for pretrained in (False, True)
    )
    assert isinstance(random, Subbit)
    assert isinstance(trained, Subbit)
    assert (random.map.size, trained.map.size) == (300 * 64 + 300 + 3010, 64**2 + 300 + 1024)
    assert random.up_parts()[0].size == random.down_parts()[0].size == random.map.size
    assert (random.trainer.local.rate, trained.trainer.local.rate) == (RATE_OF_RANDOM_WEIGHTS, 0.0025)
    assert (random.trainer.local.guard, trained.trainer.local.guard) == (True, "start"), "random weights are no refuge"
    assert (random.trainer.local.calibrate, trained.trainer.local.calibrate) == (False, True)


def test_more_values_than_the_trellis_code_is_quick_for_go_through_eden() -> None:
    wide = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 1_000), torch.nn.ReLU(), torch.nn.Linear(1_000, 10)
    )
    few, many = (
        Workplace(digits_problem(module, PARTS), settings(method="subbit", clients=6)).method("main")
        for module in (mlp(64), wide)
    )
    assert isinstance(many, Subbit)
    assert many.map.moves > MOST_IN_CODE
    codecs = [[part[0].codec for part in (each.up_parts(), each.down_parts())] for each in (few, many)]
    assert [[type(codec) for codec in both] for both in codecs] == [[Trellis, Trellis], [Eden, Eden]]
    chosen = settings(method="subbit", clients=6, codec="trellis", memory=6, down_codec="trellis", down_memory=6)
    asked = Workplace(digits_problem(wide, PARTS), chosen).method("main")
    assert [type(part[0].codec) for part in (asked.up_parts(), asked.down_parts())] == [Trellis, Trellis]


def test_other_methods_do_not_choose_a_schedule() -> None:
    with pytest.raises(ConfigError, match="schedule=auto: this method does not choose"):
        Workplace(digits_problem(mlp(64), PARTS), settings(method="gradmask", schedule="auto", clients=6)).method(
            "main"
        )


def test_random_weights_within_a_budget_move_in_groups() -> None:
    assert made(bytes=400).map.size < sum(most_values(made().task, "random"))
    assert made().map.size == sum(most_values(made().task, "random"))


def test_it_learns_from_random_weights() -> None:
    """No head is fitted, and guessing is right for a tenth of 100 new digits."""
    chosen = settings(method="subbit", clients=6, rounds=20, evaluate_every=20, batch_size=8)
    summary = run_job(digits_problem(mlp(64), PARTS), chosen).summary
    assert summary["accuracy_before"] < 0.25
    assert summary["accuracy"] > 0.6


def test_the_given_rate_counts() -> None:
    assert made(learning_rate=0.3).trainer.local.rate == 0.3
    with pytest.raises(ConfigError, match="needs a number here"):
        made(learning_rate="paper")


def test_a_small_network_has_no_more_values_than_it_can_use() -> None:
    """Of 64 * 64 + 64 weights outside the head, and 64 * 10 + 10 in it: R has 64 * 64 values, each bias one."""
    assert made().map.size == 64 * 64 + 64 + 650


@pytest.mark.parametrize("value", [0, -1, "many"])
def test_a_number_of_values_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigError, match="dimensions"):
        settings(method="subbit", dimensions=value)


def test_what_clients_are_sent_is_counted_with_what_they_missed() -> None:
    """Of six clients three take part in a round; whoever returns after a pause is sent what it missed too."""
    assert missed_broadcasts(made(rounds=5).task) == {0: 30}
    some = missed_broadcasts(made(rounds=5, participation=0.5).task)
    assert sum(some.values()) == 15
    assert max(some) >= 1


def test_budgets_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="bytes=80: needs at least"):
        made(bytes=80)
    with pytest.raises(ConfigError, match="give one of them"):
        settings(method="subbit", bytes=500, run_bytes=50_000)
    with pytest.raises(ConfigError, match="leave these out"):
        settings(method="subbit", bytes=500, dimensions=100)
    for bits in ({"bits": 0.5}, {"down_bits": 4}):
        with pytest.raises(ConfigError, match="decides bits and down_bits"):
            settings(method="subbit", bytes=500, **bits)
    with pytest.raises(ConfigError, match="eden or trellis"):
        settings(method="subbit", bytes=500, codec="dense")


def test_it_learns_and_its_bytes_are_a_small_part_of_one_bit_per_weight() -> None:
    problem = digits_problem(mlp(64), PARTS)
    summary = run_job(problem, settings(method="subbit", clients=6, rounds=8, learning_rate=0.02, bytes=600)).summary
    assert summary["accuracy"] > summary["accuracy_before"] + 0.05
    assert summary["uplink_bpp"] < 1


@pytest.mark.parametrize("head", ["lda", "keep"])
def test_the_network_of_a_run_folder_is_the_one_that_was_trained(head: str, tmp_path: Path) -> None:
    """The state is a distance from the start, and the fitted head is part of the start."""
    problem = digits_problem(mlp(64), PARTS)
    chosen = settings(method="subbit", clients=6, rounds=2, head=head, select="all", folder=str(tmp_path), name="a")
    result = run_job(problem, chosen, RunFolder.create(chosen, ""))
    opened = open_run(tmp_path / "a", problem=digits_problem(mlp(64), PARTS)).workplace
    batch = problem.test.batch(np.arange(20))
    with torch.no_grad():
        torch.testing.assert_close(opened.module(batch.inputs), result.module(batch.inputs))
