"""Adam and SGD over one long vector, block by block, so that the intermediate results of a step stay in the cache.

The operations on each value are those of `torch.optim`, in the same order, so the results are equal bit for bit. (The
fused Adam of torch rounds differently.) These classes do not derive from torch's: it wraps each step of those in a
profiler's hook, which takes longer than a step of a small network.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Protocol

import torch
from torch import Tensor

BLOCK = 1 << 17
"""Values of a block: five vectors of them are 2.5 MB."""


class Optimizer(Protocol):
    """What local training needs of an optimiser; those of torch have it."""

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> Any: ...


class BlockedAdam:
    """Trains one vector. The options and the state have the names of torch's."""

    def __init__(self, trained: Tensor, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.param_groups: list[dict[str, Any]] = [{"params": [trained], **options}]
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._buffer = torch.empty(min(BLOCK, trained.numel()))

    @torch.no_grad()
    def step(self) -> None:
        group = self.param_groups[0]
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


class BlockedSgd:
    """Trains one vector. The options and the state have the names of torch's."""

    def __init__(self, trained: Tensor, lr: float, momentum: float, weight_decay: float, nesterov: bool) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        self.param_groups: list[dict[str, Any]] = [{"params": [trained], **options}]
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        group = self.param_groups[0]
        (trained,) = group["params"]
        rate, momentum = group["lr"], group["momentum"]
        if not momentum and not group["weight_decay"]:
            trained.add_(trained.grad, alpha=-rate)
            return
        state = self.state[trained]
        first = momentum and "momentum_buffer" not in state
        if first:
            state["momentum_buffer"] = torch.empty_like(trained)
        velocities = state.get("momentum_buffer", trained).split(BLOCK)
        for values, gradient, velocity in zip(trained.split(BLOCK), trained.grad.split(BLOCK), velocities, strict=True):
            if group["weight_decay"]:
                gradient = gradient.add(values, alpha=group["weight_decay"])
            if momentum:
                if first:
                    velocity.copy_(gradient)
                else:
                    velocity.mul_(momentum).add_(gradient)
                gradient = gradient.add(velocity, alpha=momentum) if group["nesterov"] else velocity
            values.add_(gradient, alpha=-rate)
