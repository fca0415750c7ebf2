"""A mask that is hard in the forward pass and a sigmoid in the backward pass, inside one client's structure.

Li, Sun, Zeng, Zhang, Li, Chen: "FedMask", SenSys 2021 (paper 004, equations 3 to 8).

    masked   w = w0 * [s >= 0] inside the structure, 0 outside    dL/ds = g * w0 * theta (1 - theta), 0 outside
    soft     w = w0 * theta                                       the same, and exact
    real     w = w0 + rate * s                                    dL/ds = g

with theta = sigmoid(s) and g = dL/dw; theta >= 1/2 means s >= 0. The structure is separate from the scores: no score
can restore a pruned element. Real positions are weights that are trained directly, here as changes in units of `rate`.
A mask's score must move by about one to have an effect and a weight by much less, but one optimiser steps both. The
gradient of real positions is not multiplied by `rate`, so with any optimiser their learning rate is `rate` times that
of the masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from subbit.core.randomness import torch_generator
from subbit.models.reparametrisation import SCORE_LIMIT, Reparametrisation
from subbit.models.structure import Layer


class HardMask(Reparametrisation):
    def __init__(self, initial: Tensor, alive: Tensor, real: Tensor, rate: float, soft: bool = False) -> None:
        """`alive` is 1 at masked positions inside the structure and 0 elsewhere; `real` are the positions of real
        values.
        """
        self.size = initial.numel()
        self.initial, self.alive, self.real = initial, alive, real
        self.rate, self.soft = rate, soft
        self._inside = initial * alive

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        factor = torch.sigmoid(trained.detach()) if self.soft else trained.detach() >= 0
        self._write(factor, trained, weights)

    def write_hard(self, trained: Tensor, weights: Tensor) -> None:
        """Write the hard-masked network, which is sent and deployed whatever is used in training."""
        self._write(trained.detach() >= 0, trained, weights)

    def _write(self, factor: Tensor, trained: Tensor, weights: Tensor) -> None:
        torch.mul(self._inside, factor, out=weights)
        weights[self.real] = self.initial[self.real] + self.rate * trained.detach()[self.real]

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        theta = torch.sigmoid(trained.detach())
        torch.mul(gradient * self._inside, theta * (1 - theta), out=out)
        out[self.real] = gradient[self.real]

    def clamp_(self, trained: Tensor) -> None:
        """Clamp scores to the range where their sigmoid has a gradient, in place. Real values are not limited."""
        values = trained[self.real]
        trained.clamp_(-SCORE_LIMIT, SCORE_LIMIT)
        trained[self.real] = values


def frozen_weights(
    initial: Tensor, layers: Sequence[Layer], form: Literal["signed", "kaiming"], shares: Sequence[float], key: int
) -> Tensor:
    """Copy with masked weights of He's scale, given the share of each layer's inputs that remains after pruning: their
    signs times sqrt(2 / (share * fan-in)), or drawn from N(0, 2 / (share * fan-in)).

    He et al., "Delving deep into rectifiers", 2015; the share as in Ramanujan et al., "What's hidden in a randomly
    weighted neural network?", CVPR 2020. Without it the logits of a masked network are small, the loss is nearly linear
    in them, and training stops at class means.
    """
    frozen, generator = initial.cpu().clone(), torch_generator(key)
    for layer, share in zip(layers, shares, strict=True):
        weights = frozen[layer.offset : layer.offset + layer.size]
        size = math.sqrt(2 / (share * layer.columns * layer.cells))
        if form == "signed":
            weights.copy_(torch.where(weights >= 0, size, -size))
        else:
            weights.normal_(0.0, size, generator=generator)
    return frozen.to(initial.device)
