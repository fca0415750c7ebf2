"""SGD with momentum under a mask: frozen positions stay bit-identical.

Algorithm 1 of Parpikhodjaev et al., "Sparse Updates as a Regularizer in Federated Learning" (SparseSGDM), masks only
the gradient. If the mask M changes between steps, this does not freeze a position: it keeps moving by its remaining
momentum v. With g = dL/dw + weight_decay * w:

    none     v = momentum v + M g           w = w - rate v          the paper's; frozen positions keep moving
    buffer   v = M (momentum v + g)         w = w - rate v          a frozen position loses its momentum
    update   v = momentum v + g             w = w - rate M v        a frozen position accumulates momentum for later

Frozen positions stay bit-identical under `buffer` and `update`, and under `none` if the mask never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from subbit.core.errors import ConfigError

MomentumPolicy = Literal["none", "buffer", "update"]


class SparseSGDM(torch.optim.Optimizer):
    """Trains one tensor; `frozen`, of the same shape, is true where it must not change."""

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
        """Set a new mask from the next step on; the momentum is kept."""
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
        # Fill with zeros instead of multiplying: 0 * inf is not 0, and -0.0 and 0.0 have different bits.
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
