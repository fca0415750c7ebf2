"""Networks whose weights, and optionally activations, are +-1 times a scale.

Courbariaux, Hubara, Soudry, El-Yaniv, Bengio: "Binarized Neural Networks", NIPS 2016. The sign has no useful
derivative: the straight-through estimator passes the gradient as if the sign were the value itself, as long as that is
in [-1, 1].
"""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.core.errors import ModelError
from subbit.models.reparametrisation import Reparametrisation

ACTIVATION_CLASS = re.compile(r"relu|gelu|silu|swish|tanh|activation", re.IGNORECASE)


class BinaryWeights(Reparametrisation):
    """w = scale * sign(s) where `binary`, with dL/ds = g * scale where |s| <= 1; w = s elsewhere. sign(0) is 1."""

    def __init__(self, binary: Tensor, scales: Tensor) -> None:
        self.size = binary.numel()
        self.binary = binary
        self.scales = torch.where(binary, scales, 1.0)

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        signs = torch.where(trained.detach() >= 0, 1.0, -1.0)
        self.scaled(torch.where(self.binary, signs, trained.detach()), weights)

    def scaled(self, values: Tensor, weights: Tensor) -> None:
        torch.mul(values, self.scales, out=weights)

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        within = ~self.binary | (trained.detach().abs() <= 1)
        torch.mul(gradient * self.scales, within, out=out)

    def clip_(self, trained: Tensor) -> Tensor:
        """Clip latent values to the range with a gradient. In place; call it after each step."""
        return trained.copy_(torch.where(self.binary, trained.clamp(-1.0, 1.0), trained))


class BinaryActivation(nn.Module):
    """sign(x), with the gradient of hardtanh."""

    def forward(self, inputs: Tensor) -> Tensor:
        clipped = functional.hardtanh(inputs)
        signs = torch.where(inputs >= 0, 1.0, -1.0)
        return clipped + (signs - clipped).detach()


def binarise_activations_(module: nn.Module) -> None:
    """Replace every activation module by a sign. In place."""
    names = [
        name
        for name, layer in module.named_modules()
        if name and ACTIVATION_CLASS.search(type(layer).__name__) and not any(True for _ in layer.children())
    ]
    if not names:
        raise ModelError(
            f"{type(module).__name__} has no activations that are modules (nn.ReLU, nn.GELU, ...): functions in its "
            "forward pass cannot be replaced; keep activations=real"
        )
    for name in names:
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, BinaryActivation())
