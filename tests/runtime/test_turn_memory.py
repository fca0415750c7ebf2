"""What a run keeps once: frozen weights, shared with the module that was given, and the opened broadcast."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.data import Examples
from subbit.models.ties import aligned, can_share, copy_module
from subbit.runtime.downlink import Broadcasts, forget_broadcast, make_downlink, receive
from subbit.runtime.messages import Order
from subbit.runtime.problem import Problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
WIDTH, HIDDEN = 1024, 8400
TRAINED = WIDTH * HIDDEN
"""Above `subbit.models.flat.LARGE`; a vector of them is a mapping of its own, which goes back when it is freed."""


def places(module: nn.Module) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in module.named_parameters()}


def test_a_sharing_copy_has_its_own_parameters_and_buffers() -> None:
    module = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16))
    copied = copy_module(module, share=True)
    assert places(copied) == places(module)
    assert copied[1].running_mean.data_ptr() != module[1].running_mean.data_ptr()  # type: ignore[index]
    copied.get_parameter("0.weight").data = torch.zeros(16, 64)
    copied.requires_grad_(False)
    assert module[0].weight.abs().sum() > 0
    assert module[0].weight.requires_grad


def test_what_a_copy_would_change_is_not_shared() -> None:
    """A part of a tensor, another order in memory, another address: kernels could round differently."""
    whole = torch.randn(65, 64)
    assert can_share(nn.Parameter(whole))
    assert not can_share(nn.Parameter(whole[:64]))
    assert not can_share(nn.Parameter(whole.T))
    module = nn.Linear(64, 64)
    buffer = np.zeros(4 * 64 * 64 + 64, np.uint8)
    start = 4 if buffer.ctypes.data % 64 == 0 else 0  # As in a file that is mapped: not where torch would put it.
    module.weight = nn.Parameter(torch.from_numpy(buffer[start : start + 4 * 64 * 64].view(np.float32).reshape(64, 64)))
    assert places(copy_module(module, share=True))["weight"] != module.weight.data_ptr()
    assert aligned(module).get_parameter("weight").data_ptr() % 64 == 0


def test_a_workplace_shares_what_is_frozen_until_it_parts() -> None:
    problem = digits_problem()
    workplace = Workplace(problem, settings(method="deltamask", select="2.weight", head="keep"), share=True)
    given, own = places(problem.module), places(workplace.module)
    assert [name for name in given if given[name] == own[name]] == [name for name in given if name != "2.weight"]
    weights = workplace.method("main").task.flat.weights
    workplace.part()
    assert not set(given.values()) & set(places(workplace.module).values())
    assert workplace.module.get_parameter("2.weight").data_ptr() == weights.data_ptr()


@pytest.mark.parametrize("head", ["keep", "kaiming", "lda"])
def test_a_run_changes_nothing_of_what_it_was_given(head: str) -> None:
    problem = digits_problem()
    before = copy.deepcopy(problem.module.state_dict())
    given = {"model": "given", "dataset": "given"}  # As from `fine_tune`.
    chosen = settings(method="deltamask", select="2.weight", head=head, rounds=1, **given)
    trained = run_job(problem, chosen).module
    for name, value in problem.module.state_dict().items():
        assert torch.equal(value, before[name])
    assert not set(places(trained).values()) & set(places(problem.module).values())


def test_server_and_client_of_a_process_open_a_broadcast_once() -> None:
    workplace = Workplace(digits_problem(mlp(16)), settings(method="deltamask"))
    method = workplace.method("main")
    downlink = make_downlink(method, "main", method.start(), Broadcasts(), 0)
    order = Order("main", 0, 0, downlink.frames)
    assert receive(method, order, {}) is downlink.view
    forget_broadcast(method)
    again = receive(method, order, {})
    assert again is not downlink.view
    np.testing.assert_array_equal(again, downlink.view)


def resident(name: str) -> int:
    return 1024 * next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(name))


def growth() -> float:
    """Of the resident memory by a round of one client, in vectors of the masked weights."""
    layers = (nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.Linear(WIDTH, 10))
    data = Examples(torch.randn(16, WIDTH), torch.arange(16) % 10)
    parts = (np.arange(16),)
    problem = Problem(nn.Sequential(*layers), data, parts, data.select(np.arange(2)), 10, True, "layers", "random")
    keys: dict[str, Any] = {"method": "deltamask", "select": "0.weight", "head": "keep", "clients": 1, "rounds": 1}
    chosen = settings(**keys, batch_size=8, cache="off")
    before = resident("VmRSS:")
    CLEAR.write_text("5")  # The largest from now on.
    run_job(problem, chosen)
    return (resident("VmHWM:") - before) / (4 * TRAINED)


@pytest.mark.skipif(not CLEAR.exists(), reason="the largest resident memory cannot be reset on this system")
def test_a_turn_of_masks_takes_eight_vectors() -> None:
    """Seven of them for long: the weights drawn and at their start, scores, gradient, two of Adam, probabilities; and
    one for counts and what passes. With a second copy of what is frozen and a second view they were ten."""
    assert min(growth(), growth()) < 9
