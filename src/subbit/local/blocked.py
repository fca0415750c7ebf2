"""Adam and SGD over one long vector, block by block, so that the intermediate results of a step stay in the cache.

The operations on each value are those of `torch.optim`, in the same order, so the results are equal bit for bit. (The
fused Adam of torch rounds differently.) These classes do not derive from torch's: it wraps each step of those in a
profiler's hook, which takes longer than a step of a small network. For the same reason autograd is not told to look
away in each step: they hold the vector detached, which it does not follow. And the short pieces of a gradient share a
block: those operations that need the gradient go over a list of them, all others over the block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from subbit.local.vector_blocks import Blocks, block_size


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
        self._values = trained.detach()
        most = block_size(trained.device)
        self._buffer = torch.empty(min(most, trained.numel()), device=trained.device)
        self._blocks = Blocks(most)

    def step(self, pieces: Sequence[Tensor] | None = None) -> None:
        """One step along `trained.grad`, or a gradient in pieces."""
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
        vectors = (self._values, state["exp_avg"], state["exp_avg_sq"])
        pieces = [trained.grad] if pieces is None else pieces
        for block, gradient in self._blocks.of(vectors, pieces):
            values, mean, square = block.vectors
            if group["weight_decay"]:
                gradient = torch._foreach_add(gradient, block.views[0], alpha=group["weight_decay"])
            torch._foreach_lerp_(block.views[1], gradient, 1 - beta1)
            square.mul_(beta2)
            torch._foreach_addcmul_(block.views[2], gradient, gradient, value=1 - beta2)
            denominator = torch.sqrt(square, out=self._buffer[: square.numel()])
            values.addcdiv_(mean, denominator.div_(root).add_(group["eps"]), value=-step_size)


class BlockedSgd:
    """Trains one vector. The options and the state have the names of torch's."""

    def __init__(self, trained: Tensor, lr: float, momentum: float, weight_decay: float, nesterov: bool) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        self.param_groups: list[dict[str, Any]] = [{"params": [trained], **options}]
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._values = trained.detach()
        # One operation on each value leaves nothing in the cache for a next one.
        self._blocks = Blocks(block_size(trained.device) if momentum or weight_decay else max(1, trained.numel()))

    def step(self, pieces: Sequence[Tensor] | None = None) -> None:
        """One step along `trained.grad`, or a gradient in pieces."""
        group = self.param_groups[0]
        (trained,) = group["params"]
        rate, momentum = group["lr"], group["momentum"]
        state = self.state[trained]
        first = momentum and "momentum_buffer" not in state
        if first:
            state["momentum_buffer"] = torch.empty_like(trained)
        vectors = (self._values, state["momentum_buffer"]) if momentum else (self._values,)
        pieces = [trained.grad] if pieces is None else pieces
        for block, gradient in self._blocks.of(vectors, pieces):
            values = block.views[0]
            if group["weight_decay"]:
                gradient = torch._foreach_add(gradient, values, alpha=group["weight_decay"])
            if momentum:
                velocities = block.views[1]
                if first:
                    torch._foreach_copy_(velocities, gradient)
                else:
                    block.vectors[1].mul_(momentum)
                    torch._foreach_add_(velocities, gradient)
                ahead = group["nesterov"]
                gradient = torch._foreach_add(gradient, velocities, alpha=momentum) if ahead else velocities
            torch._foreach_add_(values, gradient, alpha=-rate)
