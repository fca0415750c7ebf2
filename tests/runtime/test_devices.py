"""Which device, in which precision; and on a real GPU where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import subbit
from subbit.core import devices
from subbit.core.devices import find_device, moved
from subbit.core.errors import ConfigError
from subbit.data.examples import Examples
from subbit.local.loss_scale import START, STEPS_TO_DOUBLE, LossScale
from subbit.methods.names import METHODS
from subbit.models import FlatModel
from subbit.runtime.engines import InProcess
from subbit.runtime.run import run_job
from tests.problems import digits_problem, settings

GPU = pytest.mark.skipif(not any(map(devices.count_devices, devices.PREFERRED)), reason="no GPU here")


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_devices", {"cuda": 2, "xpu": 0, "mps": 0}.get)
    assert [str(find_device("auto", worker)) for worker in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert str(find_device("cuda:1")) == "cuda:1"
    assert str(find_device("cpu")) == "cpu"
    with pytest.raises(ConfigError, match="device=cuda:2: found 2 cuda devices here; use device=auto or device=cpu"):
        find_device("cuda:2")
    with pytest.raises(ConfigError, match="device=mps: found 0 mps devices"):
        find_device("mps")
    monkeypatch.setattr(devices, "count_devices", {"cuda": 0, "xpu": 0, "mps": 1}.get)
    assert str(find_device("auto", 3)) == "mps"


def test_another_name_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="device=gpu: needs auto, cpu, cuda"):
        settings(device="gpu")


def test_a_vector_on_its_own_device_is_not_copied() -> None:
    vector = torch.zeros(3)
    with moved(vector, torch.device("cpu")) as there:
        assert there is vector


def test_a_server_whose_clients_train_elsewhere_needs_no_gpu() -> None:
    chosen = settings(method="fedavg", rounds=1, device="cuda:99")
    with pytest.raises(ConfigError, match="device=cuda:99: found"):
        run_job(digits_problem(), chosen)
    found = run_job(digits_problem(), chosen, make_engine=lambda workplace: InProcess(workplace, 1)).summary
    assert found["failed_clients"] == 0


def accuracy(**values: Any) -> float:
    problem = digits_problem()
    data = [problem.client_data(client) for client in range(3)]
    return subbit.fine_tune(problem.module, data, problem.test, method="fedavg", rounds=4, epochs=4, **values).score


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_as_well(precision: str) -> None:
    """On 100 digits; two of them are two standard deviations of a share of 0.99."""
    assert accuracy(precision=precision) >= accuracy() - 0.02


def test_outputs_are_float32_and_computed_in_half() -> None:
    seen = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.head(inputs)
            seen.append(outputs.dtype)
            return outputs

    data = (torch.randn(12, 4), torch.arange(12) % 3)
    result = subbit.fine_tune(Watched(), [data], data, method="fedavg", rounds=1, precision="bfloat16")
    assert torch.bfloat16 in seen
    assert result.module.head.weight.dtype == torch.float32


def test_a_module_that_cannot_compute_in_half_is_refused_before_the_run() -> None:
    class Whole(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            if torch.is_autocast_enabled("cpu"):
                raise RuntimeError("no such kernel")
            return super().forward(inputs)

    data = (torch.randn(12, 4), torch.arange(12) % 3)
    with pytest.raises(ConfigError, match=r"precision=bfloat16: the module does not run in it on cpu: .*no such"):
        subbit.fine_tune(Whole(4, 3), [data], data, method="fedavg", rounds=1, precision="bfloat16")


def test_float16_scales_the_loss_and_leaves_out_what_overflows() -> None:
    flat = FlatModel(nn.Linear(2, 1, bias=False), "all")
    batch = Examples(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64))
    size = [1.0]

    def loss(batch: Examples) -> Tensor:
        return flat.module(batch.inputs).sum() * size[0]

    def backward(batch: Examples, factor: float) -> float:
        found = loss(batch)
        flat.backward(found * factor)
        return float(found.detach())

    scale = LossScale(flat, backward)
    scale.backward(batch)
    assert scale.usable
    assert flat.gradient.tolist() == [1.0, 1.0]
    size[0] = 1e36  # Times 2^14 it is more than float32 can hold.
    scale.backward(batch)
    assert not scale.usable
    assert scale.factor == START / 2
    size[0] = 1.0
    for _ in range(STEPS_TO_DOUBLE):
        scale.backward(batch)
    assert scale.factor == START


def test_privacy_needs_float32() -> None:
    with pytest.raises(ConfigError, match="privacy: gradients of examples are float32; use precision=float32"):
        accuracy(precision="bfloat16", privacy="per-step")


@GPU
@pytest.mark.parametrize("name", METHODS.names())
def test_a_gpu_learns_what_the_cpu_learns(name: str) -> None:
    problem = digits_problem()
    data = [problem.client_data(client) for client in range(3)]
    scores = [
        subbit.fine_tune(problem.module, data, problem.test, method=name, rounds=3, epochs=2, device=where).score
        for where in ("cpu", "auto")
    ]
    assert abs(scores[0] - scores[1]) < 0.1


@GPU
def test_a_gpu_draws_the_bits_of_the_cpu() -> None:
    from subbit.codecs.sampler import uniforms
    from subbit.models.draws import uniforms_24

    expected = (uniforms(5, 0, 1_000_000) >> 8).astype(np.float32) / 2**24
    assert np.array_equal(uniforms_24(5, 0, 1_000_000, find_device("auto")).cpu().numpy(), expected)
