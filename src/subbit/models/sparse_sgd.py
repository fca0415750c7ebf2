"""SGD with momentum under a mask: frozen places stay as they are, to the last bit.

Algorithm 1 of Parpikhodjaev et al., "Sparse Updates as a Regularizer in Federated Learning" (SparseSGDM), masks the
gradient alone. With a mask M that changes between steps that is not the constraint it is meant to be: a place that
becomes frozen goes on moving by what its momentum v still holds. With g = dL/dw + weight_decay * w:

    none     v = momentum v + M g           w = w - rate v          the paper's; frozen places move on by inertia
    buffer   v = M (momentum v + g)         w = w - rate v          a frozen place forgets its momentum
    update   v = momentum v + g             w = w - rate M v        a frozen place gathers momentum for later

Under `buffer` and `update`, and under `none` as long as the mask never changes, frozen places keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from subbit.core.errors import ConfigError

MomentumPolicy = Literal["none", "buffer", "update"]


class SparseSGDM(torch.optim.Optimizer):
    """Trains one tensor; `frozen`, of its shape, is true where it must not change."""

    def __init__(
        self,
        trained: Tensor,
        frozen: Tensor,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        mask_momentum: MomentumPolicy = "buffer",
    ) -> None:
        if mask_momentum not in get_args(MomentumPolicy):
            raise ConfigError(f"mask_momentum={mask_momentum!r}: there are {', '.join(get_args(MomentumPolicy))}")
        super().__init__([trained], {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.mask_momentum = mask_momentum
        self.freeze(frozen)

    def freeze(self, frozen: Tensor) -> None:
        """Another mask from the next step on; the momentum stays."""
        (trained,) = self.param_groups[0]["params"]
        if frozen.dtype != torch.bool or frozen.shape != trained.shape:
            raise ConfigError(
                f"found a mask of {frozen.dtype} {list(frozen.shape)}; need torch.bool {list(trained.shape)}"
            )
        self.frozen = frozen

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group: dict[str, Any] = self.param_groups[0]
        (trained,) = group["params"]
        gradient = trained.grad.add(trained, alpha=group["weight_decay"]) if group["weight_decay"] else trained.grad
        velocity: Tensor = self.state[trained].setdefault("momentum", torch.zeros_like(trained))
        # Places are filled with zeros and not multiplied by them: 0 * inf is not 0, and -0.0 is not the bits of 0.0.
        if self.mask_momentum == "none":
            velocity.mul_(group["momentum"]).add_(gradient.masked_fill(self.frozen, 0.0))
            trained.add_(velocity, alpha=-group["lr"])
        elif self.mask_momentum == "buffer":
            velocity.mul_(group["momentum"]).add_(gradient).masked_fill_(self.frozen, 0.0)
            trained.add_(velocity, alpha=-group["lr"])
        else:
            velocity.mul_(group["momentum"]).add_(gradient)
            trained.add_(velocity.masked_fill(self.frozen, 0.0), alpha=-group["lr"])
        return loss
