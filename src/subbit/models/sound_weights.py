"""Weights that nothing can be trained from are refused before a run: layers without a size, numbers that are none."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from subbit.core.errors import ModelError


def check_weights(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise ModelError(
                f"{name} has no size yet (a lazy layer): call the module once on a batch of examples, then pass it on"
            )
        if not parameter.is_meta and not bool(torch.isfinite(parameter.detach()).all()):
            raise ModelError(f"{name} contains NaN or infinity: training cannot start from it; load the weights anew")
