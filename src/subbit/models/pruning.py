"""Pruning without data: which weights carry the flow through a network.

Tanaka, Kunin, Yamins, Ganguli: "Pruning neural networks without any data by iteratively conserving synaptic flow",
NeurIPS 2020 (SynFlow).

    R = sum of the outputs for an input of ones, with every parameter w replaced by |w|
    saliency = |w dR/dw|;  in each of n iterations all but the share keep^(i / n) of the largest become zero

All machines that prune the same network must keep the same weights, but the last digits of a matrix product differ
between machines. So the flow is computed in float64 and rounded to float32: only weights whose saliencies differ by
less than a rounding error could be ranked differently. Ties go to the larger weight, then to the lower index.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.models.flat import FlatModel
from subbit.models.frozen_weights import widened

Places = NDArray[np.int64]
Values = NDArray[np.floating[Any]]


def input_of_ones(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A batch of one input of ones; uint8 inputs are 255, which a network scales to one."""
    return torch.full((1, *shape), 255 if dtype == torch.uint8 else 1, dtype=dtype)


def surviving_places(
    flat: FlatModel, ones: Tensor | None, keep: float, iterations: int = 1, per_tensor: bool = True
) -> Places:
    """Positions of the flat vector that are not pruned, ascending. Without an input the largest weights survive.

    `per_tensor` keeps the same share of every tensor. With a global ranking whole tensors may be pruned: the
    conservation law that protects them in chains of ReLU layers holds for neither attention nor normalisation.
    """
    network = copy.deepcopy(widened(flat.module)).cpu().double().eval()  # Not every device has float64.
    parameters = dict(network.named_parameters(remove_duplicate=False))
    selected = [parameters[name] for name in flat.template.names]
    for layer in network.modules():
        layer.register_forward_pre_hook(_in_float64, with_kwargs=True)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.abs_()
    kept: list[NDArray[np.bool_]] = []
    for iteration in range(1, iterations + 1):
        saliencies = _saliencies(network, selected, ones)
        magnitudes = [weight.detach().numpy().ravel() for weight in selected]
        share = keep if iteration == iterations else keep ** (iteration / iterations)
        if per_tensor:
            kept = [_largest(*pair, share) for pair in zip(saliencies, magnitudes, strict=True)]
        else:
            together = _largest(np.concatenate(saliencies), np.concatenate(magnitudes), share)
            kept = np.split(together, flat.template.offsets[1:])
        with torch.no_grad():
            for weight, survives in zip(selected, kept, strict=True):
                weight.mul_(torch.from_numpy(survives).view(weight.shape))
    return np.flatnonzero(np.concatenate(kept))


def _saliencies(network: nn.Module, selected: Sequence[Tensor], ones: Tensor | None) -> list[Values]:
    if ones is None:
        return [np.zeros(weight.numel(), np.float32) for weight in selected]
    try:
        flow = network(ones).sum()
        gradients = torch.autograd.grad(flow, selected, allow_unused=True)
    except Exception as error:  # Any module may be given and can fail in any way.
        raise ModelError(f"no flow through {type(network).__name__} in float64, prune by magnitude: {error}") from error
    if not torch.isfinite(flow):
        raise ModelError(f"the flow through {type(network).__name__} is {flow.item()}, no saliency can be had from it")
    return [
        (weight * (torch.zeros(()) if gradient is None else gradient)).abs().float().detach().numpy().ravel()
        for weight, gradient in zip(selected, gradients, strict=True)
    ]


def _largest(saliency: Values, magnitude: Values, share: float) -> NDArray[np.bool_]:
    count = max(1, round(share * saliency.size))
    cut = np.partition(saliency, saliency.size - count)[saliency.size - count]
    kept: NDArray[np.bool_] = saliency > cut
    ties = np.flatnonzero(saliency == cut)
    by_magnitude = ties[np.argsort(-magnitude[ties], kind="stable")]
    kept[by_magnitude[: count - np.count_nonzero(kept)]] = True
    return kept


def _in_float64(layer: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Convert the inputs to float64 like the weights, also in modules that produce float32."""

    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    return tuple(map(wide, arguments)), {name: wide(value) for name, value in keywords.items()}
