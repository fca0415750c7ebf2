"""Local training, shared by all methods: batches, forward, backward, one optimiser over one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.devices import number
from subbit.core.errors import SubbitError
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key, torch_randomness
from subbit.core.values import require
from subbit.data.batches import batches
from subbit.data.examples import Data, Examples
from subbit.local.backward import Backward
from subbit.local.blocked import BlockedAdam, BlockedSgd, Optimizer
from subbit.local.epoch import epoch_batches
from subbit.local.loss_scale import LossScale
from subbit.local.optimizers import Adam, OptimizerPiece
from subbit.models.linear_products import fast_products
from subbit.models.reparametrisation import Identity, Reparametrisation
from subbit.models.task import Task, Turn


class TrainingError(SubbitError):
    """Local training that cannot continue, e.g. because of a NaN loss. The client counts as failed."""


@dataclass(frozen=True)
class Local:
    """How a client trains in its turn. The optimiser is reset in every turn."""

    epochs: int = 1
    batch_size: int = 64
    micro_batch: int | None = None
    """Examples that go through the network at a time in training: the gradient of a batch is added up over pieces of
    this size. Smaller needs less memory; the step is that of the whole batch."""
    optimizer: OptimizerPiece = choice("optimizer", Adam())
    learning_rate: float | Literal["auto", "paper"] = 1e-3
    """The words are for methods with a default rate for each way of training."""
    gradient_clip: float | None = None
    """Clip gradients to this norm before each step; none: no clipping."""
    normalise: bool = False
    """Divide the gradient by its root mean square in every step. For SGD: makes the learning rate comparable across
    networks."""
    warmup_rounds: int = 0
    """The learning rate rises linearly over this many first rounds of the run."""
    schedule: Literal["auto", "constant", "cosine"] = "constant"
    """`cosine`: the learning rate falls to nearly zero over the rounds of the run. `auto`: for methods that choose."""
    schedule_every: Literal["round", "step"] = "round"
    """When the learning rate changes: between rounds, or in every step."""
    guard: bool | Literal["start"] = False
    """A change that raises the loss on the client's own examples is halved until it does not, see
    `subbit.local.step_guard`. `start`: and where the received network is worse than the start of the run, the client
    goes back towards it; with map=subspace."""
    calibrate: bool = False
    """Logits in training account for the client's own mix of classes, so that it is not learned, see
    `subbit.local.calibration`. No effect where examples do not have one class each. Where no head is fitted, nobody
    knows the mix of all clients: only classes that the client lacks are accounted for."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs={self.epochs}: needs at least 1")
        require(self.batch_size >= 1, f"batch_size={self.batch_size}: needs at least 1")
        pieces = self.micro_batch
        require(pieces is None or pieces >= 1, f"micro_batch={pieces}: needs at least 1, or none")
        rate = self.learning_rate
        require(isinstance(rate, str) or 0 <= rate < math.inf, f"learning_rate={rate}: needs a number from 0 up")
        clip = self.gradient_clip
        require(clip is None or clip > 0, f"gradient_clip={clip}: needs a number above 0, or none")
        require(self.warmup_rounds >= 0, f"warmup_rounds={self.warmup_rounds}: needs a number from 0 up")

    def rate_factor(self, round_number: float, rounds: int) -> float:
        """Factor on the learning rate in the given round.

        >>> [Local(warmup_rounds=3).rate_factor(number, 10) for number in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        factor = min(1.0, (round_number + 1) / (self.warmup_rounds + 1))
        return factor if self.schedule == "constant" else factor * (1 + math.cos(math.pi * round_number / rounds)) / 2

    @property
    def rate(self) -> float:
        """The learning rate as a number."""
        require(not isinstance(self.learning_rate, str), f"learning_rate={self.learning_rate}: needs a number here")
        return float(self.learning_rate)

    def make_optimizer(self, trained: Tensor) -> Optimizer:
        return self.optimizer.make(trained, self.rate)

    def draw_batches(self, count: int, key: int) -> Iterator[NDArray[np.int64]]:
        """The indices of the examples for each step of an epoch."""
        return batches(count, self.batch_size, key)


@dataclass(frozen=True)
class Hooks:
    """Customisation of a turn."""

    objective: Callable[[Examples], Tensor] | None = None
    """Loss of a batch, instead of that of the task's objective."""
    backward: Callable[[Examples], float] | None = None
    """Replaces forward and backward: returns the loss of a batch and leaves its gradient in `flat.gradient`."""
    adjust: Callable[[Tensor, Tensor], object] | None = None
    """Modifies the gradient of the trained vector, in place: (trained, gradient)."""
    constrain: Callable[[Tensor], object] | None = None
    """Modifies the trained vector, in place, after every step."""
    finished: Callable[[int, float], bool] | None = None
    """Called after every epoch with its number and mean loss; returns whether to stop."""
    optimizer: Optimizer | None = None
    """Optimiser of the trained vector, instead of the configured one."""


PLAIN = Hooks()


def train_locally(
    task: Task,
    settings: Local,
    network: Reparametrisation,
    trained: Tensor,
    data: Data,
    turn: Turn,
    hooks: Hooks = PLAIN,
) -> float:
    """Train the vector in place on one client's data; returns the mean loss of the last epoch."""
    flat, seed, where = task.flat, task.seed, (turn.round_number, turn.client)
    objective = hooks.objective or task.loss
    backward = Backward(task, objective, settings.micro_batch)
    compute: Callable[[Examples], float] = hooks.backward or backward
    # A map of each place by itself pulls the gradient back in place.
    trained.grad = flat.gradient if network.elementwise else torch.zeros_like(trained)
    # A step of the weights themselves needs no copies. A turn's own `backward` may change the weights in passing.
    in_place = isinstance(network, Identity) and hooks.backward is None
    scale = LossScale(flat, backward) if task.precision == torch.float16 and hooks.backward is None else None
    if scale is not None:
        compute = scale.backward
    optimizer = hooks.optimizer or settings.make_optimizer(trained)
    take_step: Callable[[], object] = optimizer.step
    whole = scale is not None or _needs_whole_gradient(settings, hooks)
    pieces: list[Tensor] = []
    if in_place and not whole and isinstance(optimizer, BlockedAdam | BlockedSgd):
        compute, take_step = partial(_backward_in_pieces, task, objective, pieces), partial(optimizer.step, pieces)
    base_rates = [group["lr"] for group in optimizer.param_groups]

    def set_rate(progress: float) -> None:
        for group, rate in zip(optimizer.param_groups, base_rates, strict=True):
            group["lr"] = rate * settings.rate_factor(turn.round_number + progress, task.rounds)

    set_rate(0.0)
    flat.attach()
    flat.training_mode()
    if task.augmentation is None:
        task.prepare(data)
    early = hooks.objective is None and hooks.backward is None  # Those of a method may look at the inputs.
    step, mean_loss = 0, 0.0
    steps = settings.epochs * math.ceil(len(data) / settings.batch_size)
    randomness = torch_randomness(derive_key(seed, "module", *where), flat.device)
    # What checkpointing computes again in the backward pass must be what it was.
    fast = fast_products(task.products)
    with fast, randomness, flat.training(trained) if in_place else nullcontext():
        for epoch in range(settings.epochs):
            losses = []
            drawn = settings.draw_batches(len(data), derive_key(seed, "batches", *where, epoch))
            for batch in epoch_batches(
                task, data, drawn, partial(derive_key, seed, "augmentation", *where), step, early
            ):
                if settings.schedule_every == "step":
                    set_rate(min(step / steps, 1.0))
                if not in_place:
                    network.write(trained, flat.weights, derive_key(seed, "training-draw", *where, step))
                loss = compute(batch)
                if not math.isfinite(loss):
                    raise TrainingError(f"the loss is {loss} in step {step}: a smaller learning_rate may help")
                losses.append(loss)
                step += 1
                if scale is not None and not scale.usable:
                    continue
                if not in_place:
                    network.pull_back(flat.gradient, trained, trained.grad)
                if hooks.adjust is not None:
                    with torch.no_grad():
                        hooks.adjust(trained, trained.grad)
                if settings.normalise:
                    _divide_by_root_mean_square(trained.grad)
                if settings.gradient_clip is not None:
                    torch.nn.utils.clip_grad_norm_(trained, settings.gradient_clip)
                take_step()
                pieces.clear()  # The next gradient takes this memory, which is in the processor's cache.
                if hooks.constrain is not None:
                    with torch.no_grad():
                        hooks.constrain(trained)
            mean_loss = sum(losses) / max(1, len(losses))
            if hooks.finished is not None and hooks.finished(epoch, mean_loss):
                break
    trained.grad = None  # As large as the vector, and of no more use.
    return mean_loss


def _needs_whole_gradient(settings: Local, hooks: Hooks) -> bool:
    """For which the gradient is added up in one vector, instead of being taken as autograd makes it."""
    changed = hooks.adjust is not None or settings.normalise or settings.gradient_clip is not None
    return changed or settings.micro_batch is not None


@torch.no_grad()
def _divide_by_root_mean_square(gradient: Tensor) -> None:
    scale = gradient.square().mean().sqrt()
    gradient.div_(torch.where(scale > 0, scale, 1.0))


def _backward_in_pieces(
    task: Task, objective: Callable[[Examples], Tensor], pieces: list[Tensor], batch: Examples
) -> float:
    """Leaves the gradient in `pieces`, as autograd made them, for an optimiser that can take it so."""
    loss = objective(batch)
    pieces[:] = task.flat.gradient_pieces(loss)
    return number(loss)
