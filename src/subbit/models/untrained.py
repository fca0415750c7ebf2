"""Whether a module that somebody brings was ever trained: its weights tell.

Training moves what starts at round numbers. A layer testifies to random weights if

    a norm       has weights of exactly one, biases of exactly zero, and has seen no batch
    another one  has biases of exactly zero, or all its values within torch's bound, 1 / sqrt(inputs of an output)

and to training where it could testify and does not. A layer without a bias whose weights exceed the bound says nothing:
it may have been drawn in another way. A module is untrained if some layer says so and none says otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SLACK = 1 + 1e-5
"""Of the bound, for rounding."""


def is_untrained(module: nn.Module) -> bool:
    """
    >>> is_untrained(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))), is_untrained(nn.Linear(4, 8, bias=False))
    (True, True)
    """
    said = [_is_fresh(layer) for layer in module.modules()]
    return any(said) and False not in said


def _is_fresh(layer: nn.Module) -> bool | None:
    """None: says nothing."""
    own = dict(layer.named_parameters(recurse=False))
    if not own or any(isinstance(each, nn.UninitializedParameter) for each in own.values()):
        return None
    if "norm" in type(layer).__name__.lower():
        seen = getattr(layer, "num_batches_tracked", None)
        return _all(own.get("weight"), 1) and _all(own.get("bias"), 0) and (seen is None or not bool(seen))
    biases = [each for name, each in own.items() if "bias" in name]
    if biases and all(_all(each, 0) for each in biases):
        return True
    bound = _bound(layer)
    if bound is not None and all(float(each.detach().abs().max()) <= SLACK * bound for each in own.values()):
        return True
    return False if biases else None


def _all(values: Tensor | None, number: float) -> bool:
    return values is None or bool((values.detach() == number).all())


def _bound(layer: nn.Module) -> float | None:
    """Of the uniform distribution that torch draws a layer's values from."""
    if isinstance(layer, nn.RNNBase):
        return 1 / math.sqrt(layer.hidden_size)
    if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) and layer.weight.numel():
        # What torch counts, also for a transposed convolution.
        return 1 / math.sqrt(torch.nn.init._calculate_fan_in_and_fan_out(layer.weight)[0])
    return None
