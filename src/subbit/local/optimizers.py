"""Registry of optimisers: every optimiser of `torch.optim` that works on a vector, each with its own options.

The learning rate is an option of local training, which schedules it, and not of the optimisers.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from subbit.core.errors import ConfigError
from subbit.core.pieces import needs
from subbit.core.registry import make_registry, register
from subbit.core.values import require
from subbit.local.blocked import BlockedAdam, BlockedSgd, Optimizer

make_registry("optimizer", check=needs("optimizer", "make"))
NOT_FOR_A_VECTOR = ("LBFGS", "SparseAdam", "Muon", "Optimizer")
"""They need a closure, sparse gradients or matrices."""
NOT_OPTIONS = ("lr", "maximize", "capturable", "differentiable")
Pair = tuple[float, float]


class OptimizerPiece(Protocol):
    name: ClassVar[str]

    def make(self, trained: Tensor, learning_rate: float) -> Optimizer: ...


def kept_vectors(piece: OptimizerPiece) -> int:
    """How many vectors, as long as the trained one, this optimiser keeps: seen after a step of a short one."""
    size = 97  # Unlike the number of any scalar that it keeps.
    trained = torch.zeros(size, requires_grad=True)
    trained.grad = torch.ones(size)
    optimizer = piece.make(trained, 1e-3)
    optimizer.step()
    return sum(value.numel() == size for value in optimizer.state[trained].values() if isinstance(value, Tensor))


@register("optimizer", "adam")
@dataclass(frozen=True)
class Adam:
    """torch.optim.Adam, in blocks that fit in the processor's cache."""

    name: ClassVar[str] = "adam"
    betas: Pair = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require(all(0 <= beta < 1 for beta in self.betas), f"betas={self.betas}: needs 0 up to, not including, 1")
        require(self.eps >= 0, f"eps={self.eps}: needs a number from 0 up")
        require(self.weight_decay >= 0, f"weight_decay={self.weight_decay}: needs a number from 0 up")
        require(self.eps >= 0, f"eps={self.eps}: needs a number from 0 up")
        require(all(0 <= beta < 1 for beta in self.betas), f"betas={self.betas}: need 0 up to, not including, 1")

    def make(self, trained: Tensor, learning_rate: float) -> Optimizer:
        return BlockedAdam(trained, learning_rate, self.betas, self.eps, self.weight_decay)


@register("optimizer", "sgd")
@dataclass(frozen=True)
class Sgd:
    """torch.optim.SGD, with momentum unless it is set to 0, in blocks that fit in the processor's cache."""

    name: ClassVar[str] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, f"momentum={self.momentum}: needs 0 up to, not including, 1")
        require(self.weight_decay >= 0, f"weight_decay={self.weight_decay}: needs a number from 0 up")
        require(self.momentum > 0 or not self.nesterov, "nesterov=true: needs a momentum above 0")

    def make(self, trained: Tensor, learning_rate: float) -> Optimizer:
        return BlockedSgd(trained, learning_rate, self.momentum, self.weight_decay, self.nesterov)


def _make(self: Any, trained: Tensor, learning_rate: float) -> Optimizer:
    options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
    optimizer: torch.optim.Optimizer = self.torch_class([trained], lr=learning_rate, **options)
    return optimizer


def _check_options(self: Any) -> None:
    """torch checks the options when an optimiser is made. Defaults need no check, and are not made at import."""
    if any(getattr(self, field.name) != field.default for field in dataclasses.fields(self)):
        try:
            _make(self, torch.zeros(1, requires_grad=True), 1e-3)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ConfigError(f"optimizer={self.name}: {error}") from None


def _piece_of(name: str, torch_class: type[torch.optim.Optimizer]) -> Any:
    """A class whose options are the optimiser's arguments with a number, or a pair of numbers, as default."""
    options = []
    for parameter in inspect.signature(torch_class).parameters.values():
        default = parameter.default
        if parameter.name in NOT_OPTIONS or not isinstance(default, float | int | tuple):
            continue
        kind: Any = bool
        if not isinstance(default, bool | tuple):
            kind, default = float, float(default)  # torch writes 0 for defaults that may be any number.
        if isinstance(default, tuple):
            if len(default) != 2 or not all(isinstance(value, float | int) for value in default):
                continue
            kind = Pair
        options.append((parameter.name, kind, dataclasses.field(default=default)))
    # Classes are created in every process, so they are compared by name and options, and found by name.
    namespace = {"name": name, "torch_class": torch_class, "make": _make, "__module__": __name__}
    namespace["__post_init__"] = _check_options
    namespace["__doc__"] = f"torch.optim.{torch_class.__name__}."
    return dataclasses.make_dataclass(torch_class.__name__, options, frozen=True, namespace=namespace)


for _name, _class in sorted(vars(torch.optim).items()):
    _is_optimizer = isinstance(_class, type) and issubclass(_class, torch.optim.Optimizer)
    if _is_optimizer and _name not in (*NOT_FOR_A_VECTOR, "Adam", "SGD"):
        globals()[_name] = register("optimizer", _name.lower())(_piece_of(_name.lower(), _class))
