"""`subbit export --shrink`: from a run to the files for a device, verified on the run's own test inputs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.core.files import replace_file
from subbit.data import Examples
from subbit.export.device import dense_copy, device_bytes
from subbit.export.measure import Written, measure
from subbit.export.onnx_session import OnnxModel
from subbit.export.onnx_writer import write_onnx
from subbit.export.runs import TrainedRun
from subbit.export.shrink import shrink

TOLERANCE = 1e-5
"""Largest allowed difference of an output, relative to the largest output or 1, whichever is greater."""
CHECKED = 1024  # Number of test inputs compared on both networks.
CHECKED_BATCH = 64


def export_device(trained: TrainedRun, folder: Path) -> dict[str, Any]:
    """Write the files; returns the contents of `report.json`. Raises without writing anything if outputs differ."""
    dense = dense_copy(trained)
    test = _test_examples(trained)
    inputs = test.tensor
    example = inputs[torch.arange(2) % len(inputs)]
    shrunk = shrink(dense, example)
    expected = _outputs(dense, inputs)
    largest = max(1.0, float(np.abs(expected).max()))
    torch_difference = _check(expected, _outputs(shrunk.module, inputs), largest, "torch")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        pair = [
            _write(trained, module, example, work / name)
            for name, module in (("dense", dense), ("shrunk", shrunk.module))
        ]
        onnx_difference = _check(expected, _onnx_outputs(pair[1].onnx, inputs), largest, "onnxruntime")
        report = {
            **trained.origin(),
            "widths": shrunk.widths,
            "inputs": shrunk.inputs,
            "left": shrunk.left,
            "checked_inputs": len(inputs),
            "accuracy": float((expected.argmax(1) == test.labels.numpy()).mean()),
            "largest_output": largest,
            "difference_torch": torch_difference,
            "difference_onnxruntime": onnx_difference,
            **measure(pair[0], pair[1], inputs, work),
        }
        folder.mkdir(parents=True, exist_ok=True)
        for path in (pair[1].safetensors, pair[1].onnx):
            replace_file(folder / path.name, path.read_bytes())
    replace_file(folder / "report.json", (json.dumps(report, indent=2) + "\n").encode())
    return report


def _test_examples(trained: TrainedRun) -> Examples:
    problem = trained.workplace.problem
    own = np.arange(len(problem.test)) if trained.client is None else problem.own_test(trained.client)
    chosen = own if len(own) else np.arange(len(problem.test))
    return problem.test_batch(chosen[:CHECKED])


def _write(trained: TrainedRun, module: nn.Module, example: Tensor, folder: Path) -> Written:
    folder.mkdir()
    written = Written(module, folder / "model.safetensors", folder / "model.onnx")
    written.safetensors.write_bytes(device_bytes(trained, module))
    write_onnx(module, example, written.onnx)
    return written


def _outputs(module: nn.Module, inputs: Tensor) -> NDArray[np.float32]:
    with torch.no_grad():
        return torch.cat([module(batch) for batch in torch.split(inputs, CHECKED_BATCH)]).numpy()


def _onnx_outputs(path: Path, inputs: Tensor) -> NDArray[np.float32]:
    model = OnnxModel(path)
    return np.concatenate([model(batch.numpy()) for batch in torch.split(inputs, CHECKED_BATCH)])


def _check(expected: NDArray[np.float32], found: NDArray[np.float32], largest: float, where: str) -> float:
    difference = float(np.abs(expected - found).max())
    # Written so that a NaN difference fails.
    if not difference <= TOLERANCE * largest:
        raise ModelError(
            f"the smaller network's outputs in {where} differ by {difference:.2e} from those of the run's, "
            f"at most {TOLERANCE * largest:.2e} is rounding: nothing was written"
        )
    return difference
