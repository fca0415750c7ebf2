"""Adam and SGD over one long vector, block by block, so that the intermediate results of a step stay in the cache.

The operations on each value are those of `torch.optim`, in the same order, so the results are equal bit for bit. (The
fused Adam of torch rounds differently.) These classes do not derive from torch's: it wraps each step of those in a
profiler's hook, which takes longer than a step of a small network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

BLOCK = 1 << 17
"""Values of a block: five vectors of them are 2.5 MB."""
DEVICE_BLOCK = 1 << 24
"""Elsewhere the time to start an operation counts, and the memory of its result."""


class Optimizer(Protocol):
    """What local training needs of an optimiser; those of torch have it."""

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> Any: ...


def in_blocks(vectors: Sequence[Tensor], gradient: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The blocks of the gradient, a vector or its pieces in order, each followed by that part of each vector."""
    pieces, start = [gradient] if isinstance(gradient, Tensor) else gradient, 0
    for piece in pieces:
        for block in torch.split(piece, BLOCK if piece.device.type == "cpu" else DEVICE_BLOCK):
            stop = start + block.numel()
            yield block, *(vector[start:stop] for vector in vectors)
            start = stop


class BlockedAdam:
    """Trains one vector. The options and the state have the names of torch's."""

    def __init__(self, trained: Tensor, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.param_groups: list[dict[str, Any]] = [{"params": [trained], **options}]
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        block = BLOCK if trained.device.type == "cpu" else DEVICE_BLOCK
        self._buffer = torch.empty(min(block, trained.numel()), device=trained.device)

    @torch.no_grad()
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
        vectors = (trained, state["exp_avg"], state["exp_avg_sq"])
        for gradient, values, mean, square in in_blocks(vectors, trained.grad if pieces is None else pieces):
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
    def step(self, pieces: Sequence[Tensor] | None = None) -> None:
        """One step along `trained.grad`, or a gradient in pieces."""
        group = self.param_groups[0]
        (trained,) = group["params"]
        rate, momentum = group["lr"], group["momentum"]
        state = self.state[trained]
        first = momentum and "momentum_buffer" not in state
        if first:
            state["momentum_buffer"] = torch.empty_like(trained)
        vectors = (trained, state.get("momentum_buffer", trained))
        for gradient, values, velocity in in_blocks(vectors, trained.grad if pieces is None else pieces):
            if group["weight_decay"]:
                gradient = gradient.add(values, alpha=group["weight_decay"])
            if momentum:
                if first:
                    velocity.copy_(gradient)
                else:
                    velocity.mul_(momentum).add_(gradient)
                gradient = gradient.add(velocity, alpha=momentum) if group["nesterov"] else velocity
            values.add_(gradient, alpha=-rate)
