"""The map of a projection: weights from a draw of the short vector, and the gradient back."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs.sampler import uniforms
from subbit.core.jit import njit
from subbit.models.device_projection import DeviceProjection
from subbit.models.draws import uniforms_24
from subbit.models.reparametrisation import Reparametrisation
from subbit.models.sparse_matrix import Array, Projection, check_array

SHIFT_8 = np.uint32(8)
UNIT_24 = np.float32(2.0**-24)


class Projected(Reparametrisation):
    """w = base + Q z with z ~ Bern(clip(s)), redrawn in every step, or z = clip(s) itself (`continuous`).

    The gradient is that of z = s, gated where s is outside of (0, 1): `strict` stops it, so a value stays at 0 or 1 for
    ever; `inward` lets it pass if the step leads back. With `key` every step draws the same uniforms.
    """

    def __init__(
        self,
        projection: Projection,
        base: Tensor | None = None,
        *,
        training: Literal["sampled", "continuous"] = "sampled",
        gate: Literal["strict", "inward"] = "inward",
        key: int | None = None,
    ) -> None:
        self.size = projection.columns
        self.projection, self.base = projection, base
        self.training, self.gate, self.key = training, gate, key
        self._elsewhere: DeviceProjection | None = None

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        if self.training == "continuous":
            drawn = trained.detach().clamp(0, 1)
        else:
            drawn = self._draw(trained.detach(), key if self.key is None else self.key)
        self.place(drawn, weights)

    def _draw(self, values: Tensor, key: int) -> Tensor:
        if values.device.type != "cpu":
            return (uniforms_24(key, 0, self.size, values.device) < values).to(torch.float32)
        drawn = torch.empty_like(values)
        check_array(values.numpy(), self.size, "trained")
        _compare(uniforms(key, 0, self.size), values.numpy(), drawn.numpy())
        return drawn

    def place(self, values: Tensor, weights: Tensor) -> None:
        """weights = base + Q values."""
        if weights.device.type == "cpu":
            self.projection.multiply(values.numpy(), weights.detach().numpy())
        else:
            self._on(weights.device).multiply(values, weights)
        if self.base is not None:
            weights.add_(self.base)

    def _on(self, device: torch.device) -> DeviceProjection:
        if self._elsewhere is None:
            self._elsewhere = DeviceProjection(self.projection, device)
        return self._elsewhere

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        if out.device.type == "cpu":
            self.projection.multiply_transposed(gradient.detach().numpy(), out.detach().numpy())
        else:
            self._on(out.device).multiply_transposed(gradient.detach(), out)
        values = trained.detach()
        if self.gate == "strict":
            out.mul_((values > 0) & (values < 1))
        else:
            out.mul_(((values > 0) | (out < 0)) & ((values < 1) | (out > 0)))


@njit
def _compare(random_words: NDArray[np.uint32], values: Array, out: Array) -> None:
    for place in range(values.size):
        uniform = np.float32(random_words[place] >> SHIFT_8) * UNIT_24
        out[place] = np.float32(1.0) if uniform < values[place] else np.float32(0.0)
