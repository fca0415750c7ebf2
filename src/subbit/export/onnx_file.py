"""`subbit export --onnx`: the network of any run for onnxruntime, tried on the run's own test inputs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError, RunFolderError
from subbit.data.form import form_of
from subbit.export.device import refuse_batch_statistics
from subbit.export.onnx_session import INPUTS, OnnxModel, require_packages
from subbit.export.onnx_writer import write_onnx
from subbit.export.pretrained import TOLERANCE
from subbit.models.frozen_weights import widened
from subbit.objectives.objective import logits_of
from subbit.peft.merge_lora import without_lora
from subbit.runtime.networks import Network


class _Logits(nn.Module):
    """The module with its tensors as arguments one after the other, and one tensor as output."""

    def __init__(self, module: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *tensors: Tensor) -> Tensor:
        single = self.names == [INPUTS]
        outputs = self.module(*tensors) if single else self.module(**dict(zip(self.names, tensors, strict=True)))
        return logits_of(outputs)


def refuse_file(path: Path) -> None:
    if os.path.lexists(path):
        raise RunFolderError(f"{path} is there already: give a new file")


def export_onnx(network: Network, path: Path) -> dict[str, Any]:
    """Write the file and return what is in it. Nothing is written if onnxruntime computes something else.

    The inputs have the names of the module's arguments, or `inputs`; the output is `outputs`.
    """
    require_packages()
    refuse_file(path)
    refuse_batch_statistics(network.module)
    module = without_lora(widened(network.module), merge=True).requires_grad_(False)
    tensors = {name or INPUTS: tensor for name, tensor in network.some.tensors().items()}
    made = _Logits(module, list(tensors)).eval()
    rows = torch.arange(max(2, len(network.some))) % len(network.some)
    example = {name: tensor[rows] for name, tensor in tensors.items()}
    with torch.no_grad():
        expected = made(*example.values()).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as temporary:
        work = Path(temporary) / "model.onnx"
        try:
            write_onnx(made, example, work)
        except ModelError as error:
            raise ModelError(str(error).replace(_Logits.__name__, type(module).__name__)) from error
        found = OnnxModel(work)({name: tensor.numpy() for name, tensor in example.items()})
        difference, largest = float(np.abs(found - expected).max()), max(1.0, float(np.abs(expected).max()))
        # Written so that a NaN difference fails.
        if not difference <= TOLERANCE * largest:
            raise ModelError(
                f"outputs in onnxruntime differ by {difference:.2e} from those of the run's network, at most "
                f"{TOLERANCE * largest:.2e} is rounding: nothing was written"
            )
        refuse_file(path)
        os.replace(work, path)
    forms = {name or INPUTS: f"[n] of {form}" for name, form in form_of(network.some).inputs}
    return {
        "bytes": path.stat().st_size,
        "inputs": forms,
        "checked_inputs": len(network.some),
        "difference": difference,
        "network": network.name,
        "client": network.client,
        "rounds": network.rounds,
    }
