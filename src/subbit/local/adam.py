"""Adam over one long vector, block by block, so that the intermediate results of a step stay in the processor's cache.

The operations on each value are those of `torch.optim.Adam`, in the same order, so the results are equal bit for bit.
torch's own fused Adam rounds differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BLOCK = 1 << 17
"""Values of a block: five vectors of them are 2.5 MB."""


class BlockedAdam(torch.optim.Optimizer):
    """Trains one vector. The state has the names of torch's."""

    def __init__(self, trained: Tensor, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        # torch's class checks the values.
        torch.optim.Adam([torch.empty(0)], lr, betas, eps, weight_decay)
        super().__init__([trained], {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._buffer = torch.empty(min(BLOCK, trained.numel()))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        group: dict[str, Any] = self.param_groups[0]
        (trained,) = group["params"]
        state = self.state[trained]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(trained)
            state["exp_avg_sq"] = torch.zeros_like(trained)
        state["step"] += 1
        number, (beta1, beta2) = float(state["step"]), group["betas"]
        step_size = group["lr"] / (1 - beta1**number)
        root = (1 - beta2**number) ** 0.5
        vectors = (trained, trained.grad, state["exp_avg"], state["exp_avg_sq"])
        for values, gradient, mean, square in zip(*(vector.split(BLOCK) for vector in vectors), strict=True):
            if group["weight_decay"]:
                gradient = gradient.add(values, alpha=group["weight_decay"])
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            denominator = torch.sqrt(square, out=self._buffer[: square.numel()])
            values.addcdiv_(mean, denominator.div_(root).add_(group["eps"]), value=-step_size)
