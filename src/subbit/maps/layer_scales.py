"""What is usual in each layer: the unit of a value that moves weights by themselves."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.devices import host
from subbit.models.task import Task


def layer_scales(task: Task) -> NDArray[np.float32]:
    """For every weight the root mean square of its tensor.

    A bias, which may be zero, has at least the scale of what else its layer has; zeros without company that of the
    whole network.
    """
    flat, module = task.flat, task.flat.module
    found = np.empty(flat.template.size, dtype=np.float32)
    whole = _root_mean_square(flat.initial)
    tensors = zip(flat.template.names, flat.template.views(flat.initial), flat.template.offsets, strict=True)
    for name, values, offset in tensors:
        scale = _root_mean_square(values)
        if values.dim() < 2 or scale == 0:
            owner = module.get_submodule(name.rpartition(".")[0])
            scale = max(scale, *(_root_mean_square(other) for other in owner.parameters(recurse=False)))
        found[offset : offset + values.numel()] = scale or whole
    return found


def _root_mean_square(values: torch.Tensor) -> float:
    return float(np.sqrt(np.mean(np.square(host(values.detach()), dtype=np.float64)))) if values.numel() else 0.0
