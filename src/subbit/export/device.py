"""A network for a device: the files of `subbit export --shrink`, and how to load them without executing code.

    model.safetensors   every parameter and buffer, with a `DeviceDescription` (see `subbit.export.mask_container`)
    model.onnx          the same network for onnxruntime, for batches of any size
    report.json         what was removed, and size, latency and memory compared with the dense network

The file contains no architecture beyond the model's name: a reader builds that model and resizes every layer to its
tensors in the file.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from subbit.core.errors import ConfigError, FrameError, ModelError
from subbit.export.layers import SelectedLinear
from subbit.export.mask_container import pack, read_file, unpack
from subbit.export.recipe import Recipe, build_description, module_tensors, recipe_values
from subbit.export.runs import TrainedRun
from subbit.models.frozen_weights import widened

INPUT_TYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


@dataclass(frozen=True, kw_only=True)
class DeviceDescription(Recipe):
    input_type: Literal["uint8", "float32", "int64"]
    run: str
    method: str
    network: str
    rounds: int
    client: int | None = None
    format: Literal[1] = 1


def dense_copy(trained: TrainedRun) -> nn.Module:
    """A copy of the run's network with all its zeros; nothing in it is trainable."""
    module = copy.deepcopy(widened(trained.workplace.module))
    module.requires_grad_(False)
    module.zero_grad(set_to_none=True)
    refuse_batch_statistics(module)
    return module


def refuse_batch_statistics(module: nn.Module) -> None:
    if any(isinstance(layer, _NormBase) and layer.training for layer in module.modules()):
        raise ConfigError(
            "batchnorm=batch: the network's outputs depend on the whole batch, a device has one input; "
            "use batchnorm=frozen or average"
        )


def device_bytes(trained: TrainedRun, module: nn.Module) -> bytes:
    """The file contents for a network of this run; `module` may be smaller than the run's."""
    kind = str(trained.workplace.problem.form.single.dtype).removeprefix("torch.")
    values = {**recipe_values(trained.workplace), **trained.origin(), "input_type": kind}
    tensors = {name: tensor.detach().numpy() for name, tensor in module_tensors(module).items()}
    return pack("device", asdict(build_description(DeviceDescription, values)), tensors)


def load_device(source: str | Path | bytes, module: nn.Module | None = None) -> nn.Module:
    """Load the network of a `model.safetensors`, in evaluation mode.

    `module` is the architecture if the file's model has no name (it was passed to `fine_tune`); it is copied.
    """
    described, arrays = unpack("device", source if isinstance(source, bytes) else read_file(source))
    description = build_description(DeviceDescription, described)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    network = description.make() if module is None else copy.deepcopy(module)
    for name, layer in list(network.named_modules()):
        _resize(network, name, layer, tensors)
    found = module_tensors(network)
    for name in sorted(found.keys() | tensors.keys()):
        wanted = _signature(found.get(name))
        if wanted != _signature(tensors.get(name)):
            raise ModelError(
                f"{name}: the file has {_signature(tensors.get(name))}, {description.model} needs {wanted}; a network "
                "to which its method added something is read by load_device(file, module)"
            )
        with torch.no_grad():
            found[name].copy_(tensors[name])
    network.requires_grad_(False).eval()
    _try(network, torch.zeros((2, *description.shape), dtype=INPUT_TYPES[description.input_type]))
    return network


def _resize(network: nn.Module, name: str, layer: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Resize a layer to its tensors in the file. Whether the layers fit together shows when the network runs."""
    if not isinstance(layer, nn.Linear | nn.Conv2d | nn.BatchNorm1d | nn.BatchNorm2d):
        return
    prefix = f"{name}." if name else ""
    if isinstance(layer, nn.Linear) and f"{prefix}columns" in tensors:
        owner, _, own_name = name.rpartition(".")
        columns = tensors[f"{prefix}columns"]
        if columns.dim() != 1 or columns.dtype != torch.int64:
            raise FrameError("value", f"{prefix}columns: needs numbers of columns")
        layer = SelectedLinear(1, 1, True, columns)
        setattr(network.get_submodule(owner), own_name, layer)
    if f"{prefix}bias" in tensors and layer.bias is None:
        layer.bias = nn.Parameter(torch.zeros(0))
    elif f"{prefix}bias" not in tensors:
        layer.bias = None
    for own_name, tensor in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
        stored = tensors.get(prefix + own_name)
        # Kernel sizes stay the same: a convolution does not take them from its weight.
        if stored is not None and tensor.is_floating_point() and stored.shape[2:] == tensor.shape[2:]:
            tensor.data = torch.empty_like(stored, dtype=tensor.dtype)
    for own_name, size in _sizes(layer).items():
        setattr(layer, own_name, size)


def _sizes(layer: nn.Module) -> dict[str, int]:
    if isinstance(layer, nn.Linear):
        return {"in_features": layer.weight.shape[-1], "out_features": layer.weight.shape[0]}
    if isinstance(layer, nn.Conv2d):
        return {"in_channels": layer.weight.shape[1], "out_channels": layer.weight.shape[0]}
    mean: Any = layer.running_mean
    return {} if mean is None else {"num_features": len(mean)}


def _signature(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


def _try(network: nn.Module, inputs: Tensor) -> None:
    try:
        with torch.no_grad():
            network(inputs)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ModelError(f"the layers in the file do not fit each other: {str(error).splitlines()[0]}") from None
