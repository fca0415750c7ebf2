"""Masks of random networks as originally trained: on centralised data, with all weights frozen.

    TopMask        w = w0 on the share `keep` of each tensor with the largest |s|, else 0     dL/ds = g * w0 * sign(s)
    RescaledMask   w = w0 * m * size / ones, tensor by tensor, m ~ Bern(sigmoid(s))           as for BernoulliMask

TopMask is edge-popup: Ramanujan, Wortsman, Kembhavi, Farhadi, Rastegari, "What's hidden in a randomly weighted neural
network?", CVPR 2020. Its straight-through estimator passes dL/dm to the magnitude |s| that is ranked, hence the sign:
the score of a weight that lowers the loss moves away from zero, whatever its sign.

RescaledMask is the dynamic weight rescaling of Zhou, Lan, Liu, Yosinski, "Deconstructing lottery tickets: zeros, signs,
and the supermask", NeurIPS 2019: the fewer weights are drawn, the larger they are scaled. The gradient treats the
factor as a constant.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.devices import number
from subbit.core.errors import ModelError
from subbit.models.reparametrisation import BernoulliMask, Reparametrisation
from subbit.models.template import Template


class TopMask(Reparametrisation):
    """Keeps exactly the same share of every tensor. Deterministic."""

    def __init__(self, initial: Tensor, template: Template, keep: float) -> None:
        if not 0.0 < keep <= 1.0:
            raise ModelError(f"keep={keep}: needs a share above 0, at most 1")
        self.size = template.size
        self.initial = initial.clone()
        self.template = template
        self.kept_counts = tuple(kept_count(count, keep) for count in template.counts)

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        scores, views = self.template.views(trained.detach()), self.template.views(weights)
        for score, view, kept in zip(scores, views, self.kept_counts, strict=True):
            view.copy_(_kept(score.abs().flatten(), kept).view(view.shape))
        weights.mul_(self.initial)

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        torch.mul(gradient, self.initial, out=out)
        # sign(0) counts as 1, or a score of zero would never change.
        out.mul_(torch.where(trained.detach() >= 0, 1.0, -1.0))


def _kept(magnitudes: Tensor, count: int) -> Tensor:
    """Mask of exactly `count` largest values; ties go to the lower index."""
    if magnitudes.device.type == "cpu":
        return torch.from_numpy(largest(magnitudes.numpy(), count))
    chosen = torch.sort(magnitudes, descending=True, stable=True).indices[:count]
    return torch.zeros_like(magnitudes, dtype=torch.bool).index_fill_(0, chosen, True)


def kept_count(count: int, keep: float) -> int:
    """How many of `count` weights are kept: at least one, or nothing would pass the layer."""
    return max(1, round(keep * count))


def largest(magnitudes: NDArray[np.float32], count: int) -> NDArray[np.bool_]:
    """Mask of exactly `count` largest values; ties go to the lower index."""
    cut = np.partition(magnitudes, magnitudes.size - count)[magnitudes.size - count]
    kept: NDArray[np.bool_] = magnitudes > cut
    ties = np.flatnonzero(magnitudes == cut)
    kept[ties[: count - np.count_nonzero(kept)]] = True
    if np.count_nonzero(kept) != count:
        raise ModelError("scores that are not numbers cannot be ranked: a smaller learning_rate may help")
    return kept


class RescaledMask(BernoulliMask):
    """A BernoulliMask of ones whose bits are scaled, so that the total size of the weights stays about the same."""

    def __init__(self, initial: Tensor, template: Template) -> None:
        super().__init__(torch.ones_like(initial))
        self._weights = initial.clone()
        self.template = template
        self._factors = torch.zeros_like(self._weights)

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        super().write(trained, weights, key)
        self._scale(weights)

    def expected(self, trained: Tensor, weights: Tensor) -> None:
        super().expected(trained, weights)
        self._scale(weights)

    def thresholded(self, trained: Tensor, weights: Tensor) -> None:
        super().thresholded(trained, weights)
        self._scale(weights)

    def _scale(self, weights: Tensor) -> None:
        """Scale bits (or their probabilities) to weights and keep the factors for the gradient of the same step."""
        views = (self.template.views(vector) for vector in (weights, self._weights, self._factors))
        for bits, frozen, factors in zip(*views, strict=True):
            # On the CPU, since not every device has float64. Without any ones every weight is zero anyway.
            ones = number(bits.cpu().sum(dtype=torch.float64)) or 1.0
            torch.mul(frozen, bits.numel() / ones, out=factors)
        weights.mul_(self._factors)

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        super().pull_back(gradient, trained, out)
        out.mul_(self._factors)


def signed_weights(
    initial: Tensor,
    template: Template,
    spread: Literal["deviation", "fan-in"],
    share: float = 1.0,
    gain: float = math.sqrt(2),
) -> Tensor:
    """Copy that keeps the signs of the weights and gives all weights of a tensor the same magnitude. Biases and norms
    are not changed.

        deviation   the standard deviation of the tensor (Zhou et al.)
        fan-in      gain / sqrt(share * fan-in), the Kaiming constant (Ramanujan et al.); `share` of the inputs is kept
    """
    signed = initial.clone()
    for view in template.views(signed):
        if view.dim() < 2:
            continue  # It has no fan-in, and the constant of its layer would be far too large.
        fan_in = math.prod(view.shape[1:])
        size = number(view.std(correction=0)) if spread == "deviation" else gain / math.sqrt(share * fan_in)
        view.copy_(torch.where(view >= 0, size, -size))
    return signed
