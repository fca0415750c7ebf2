"""The device model: files that come back as the same network, ONNX that agrees with torch, damage that is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subbit.core.errors import ConfigError, FrameError, ModelError, SubbitError
from subbit.export.device import dense_copy, device_bytes, load_device
from subbit.export.mask_container import pack, unpack
from subbit.export.measure import alternating_seconds
from subbit.export.onnx_session import OnnxModel
from subbit.export.onnx_writer import write_onnx
from subbit.export.runs import TrainedRun
from subbit.export.shrink import shrink
from subbit.export.write import export_device
from subbit.models import load_classifier
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, settings


def written(problem: Problem, **words: object) -> TrainedRun:
    """A run whose network was emptied by hand: every other unit of each layer but the last."""
    workplace = Workplace(problem, settings(**words))
    layers = [layer for layer in workplace.module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    with torch.no_grad():
        for layer in layers[:-1]:
            layer.weight[::2] = 0
    workplace.method("main").task.flat.evaluation_mode()
    return TrainedRun(workplace, "thresholded", None, 1)


def named(model: str) -> TrainedRun:
    words = {"model": model, "limit": 40, "test_limit": 40}
    return written(build_problem(settings(**words).run), **words)


def test_a_run_becomes_a_smaller_network_in_two_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subbit.export.measure.ENOUGH_SECONDS", 0.0)
    trained = named("convnet")
    report = export_device(trained, tmp_path / "device")
    assert {path.name for path in (tmp_path / "device").iterdir()} == {"model.safetensors", "model.onnx", "report.json"}
    assert report == json.loads((tmp_path / "device" / "report.json").read_text(), object_hook=_pairs)
    assert {name: after for name, (_, after) in report["widths"].items()} == _halves(trained)
    measured = report["measured"]
    for quantity in ("parameters", "safetensors_bytes", "onnx_bytes"):
        assert measured[quantity]["shrunk"] < 0.5 * measured[quantity]["dense"], quantity
    for runtime in ("onnxruntime", "torch"):
        for batch in (1, 64):
            assert min(measured[f"{runtime}_seconds_batch_{batch}"].values()) > 0
    inputs = trained.workplace.problem.test.inputs
    dense = dense_copy(trained)(inputs)
    small = load_device(tmp_path / "device" / "model.safetensors")
    assert torch.allclose(small(inputs), dense, atol=1e-5)
    onnx = OnnxModel(tmp_path / "device" / "model.onnx")
    for batch in (inputs, inputs[:1], inputs[:7]):
        assert np.allclose(onnx(batch.numpy()), small(batch).numpy(), atol=1e-5)


def _pairs(found: dict[str, object]) -> dict[str, object]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _halves(trained: TrainedRun) -> dict[str, int]:
    """Of every convolution half is empty. Frozen statistics 0 and 1 leave a zero a zero, so that all of that goes."""
    modules = dict(trained.workplace.module.named_modules())
    return {name: len(layer.weight) // 2 for name, layer in modules.items() if isinstance(layer, nn.Conv2d)}


@pytest.mark.parametrize("model", ["mlp", "conv4"])
def test_a_file_comes_back_as_the_same_network(model: str) -> None:
    trained = named(model)
    dense = dense_copy(trained)
    inputs = trained.workplace.problem.test.inputs
    small = shrink(dense, inputs[:2]).module
    for network in (dense, small):
        again = load_device(device_bytes(trained, network))
        assert again(inputs).numpy().tobytes() == network(inputs).numpy().tobytes()
        sizes = [
            (layer.weight.shape[0], layer.extra_repr()) for layer in again.modules() if isinstance(layer, nn.Linear)
        ]
        assert all(f"out_features={outputs}" in words for outputs, words in sizes)


def test_a_module_of_ones_own_is_read_with_its_architecture() -> None:
    trained = written(digits_problem(conv_net()))
    inputs = trained.workplace.problem.test.inputs
    small = shrink(dense_copy(trained), inputs[:2]).module
    data = device_bytes(trained, small)
    own = conv_net()
    assert torch.equal(load_device(data, own)(inputs), small(inputs))
    assert own[1].out_channels == 8  # Copied, not changed.
    with pytest.raises(ModelError, match="no model 'test'"):
        load_device(data)
    with pytest.raises(ModelError, match="load_device"):
        load_device(data, nn.Sequential(conv_net(), nn.Linear(10, 10)))


class Picking(nn.Module):
    """Columns 0 to 5 are never read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.first.weight[:, :6] = 0

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.relu(self.first(inputs)))
        return outputs


def test_picked_inputs_are_kept_in_onnx(tmp_path: Path) -> None:
    network = Picking().eval().requires_grad_(False)
    inputs = torch.randn(9, 12)
    small = shrink(network, inputs).module
    write_onnx(small, inputs[:2], tmp_path / "model.onnx")
    assert np.allclose(OnnxModel(tmp_path / "model.onnx")(inputs.numpy()), network(inputs).numpy(), atol=1e-6)


def test_statistics_of_the_batch_are_no_device_model() -> None:
    trained = written(digits_problem(conv_net()), batchnorm="batch")
    with pytest.raises(ConfigError, match="batchnorm=batch"):
        dense_copy(trained)


def test_outputs_that_differ_are_an_error_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(module: nn.Module, example: Tensor) -> object:
        shrunk = shrink(module, example)
        with torch.no_grad():
            shrunk.module.head.bias += 1e-3
        return shrunk

    monkeypatch.setattr("subbit.export.write.shrink", wrong)
    with pytest.raises(ModelError, match="differ by"):
        export_device(named("mlp"), tmp_path / "device")
    assert not (tmp_path / "device").exists()


# Hostile bytes.


@pytest.fixture(scope="module")
def good() -> bytes:
    trained = named("mlp")
    return device_bytes(trained, shrink(dense_copy(trained), trained.workplace.problem.test.inputs[:2]).module)


def test_damage_is_a_typed_error(good: bytes) -> None:
    generator = np.random.default_rng(0)
    for place in [*range(0, 2000, 7), *generator.integers(0, len(good), 50)]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << int(generator.integers(8))
        with pytest.raises(FrameError):
            load_device(bytes(damaged))
    for length in (0, 7, 8, 100, len(good) - 1):
        with pytest.raises(FrameError):
            load_device(good[:length])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("head.weight"),
        lambda tensors: tensors.update({"head.weight": tensors["head.weight"][:, :-1]}),
        lambda tensors: tensors.update({"head.weight": tensors["head.weight"].astype(np.float64)}),
        lambda tensors: tensors.update({"head.bias": tensors["head.bias"][:-1]}),
        lambda tensors: tensors.update({"head.bias": tensors["head.bias"][:, None]}),
        lambda tensors: tensors.update({"other": np.zeros(3, np.float32)}),
        lambda tensors: tensors.update({"head.columns": np.array([10**9])}),
        lambda tensors: tensors.update({"head.columns": np.array([-1])}),
        lambda tensors: tensors.update({"head.columns": np.array([[1]])}),
        lambda tensors: tensors.update({"preprocess.mean": np.zeros((7, 1, 1), np.float32)}),
    ],
)
def test_forged_layers_are_refused(good: bytes, change: object) -> None:
    description, tensors = unpack("device", good)
    forged = copy.copy(tensors)
    change(forged)  # type: ignore[operator]
    with pytest.raises(SubbitError):
        load_device(pack("device", description, forged))


@pytest.mark.parametrize(
    ("key", "value"), [("classes", 10**9), ("model", "nothing"), ("input_type", "float8"), ("format", 9)]
)
def test_forged_descriptions_are_refused(good: bytes, key: str, value: object) -> None:
    description, tensors = unpack("device", good)
    with pytest.raises(SubbitError):
        load_device(pack("device", {**description, key: value}, tensors))


def test_runs_take_turns() -> None:
    order: list[str] = []
    seconds = alternating_seconds([lambda: order.append("a"), lambda: order.append("b")])
    assert order[:6] == ["a", "b"] * 3
    assert order.count("a") == order.count("b")
    assert all(value >= 0 for value in seconds)


def test_a_network_that_nobody_emptied_stays_as_it_is() -> None:
    network = load_classifier("mlp", 10, key=1, input_shape=(1, 8, 8)).eval()
    shrunk = shrink(network, torch.zeros((2, 1, 8, 8), dtype=torch.uint8))
    assert not shrunk.widths
    assert not shrunk.inputs
    assert not shrunk.left
