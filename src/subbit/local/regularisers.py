"""FedProx and MOON: keep local training close to the global model, for every method that trains weights.

    fedprox  loss + mu/2 |w - w_g|^2 over the trained vector: pulls the weights
    moon     loss + mu l, l = -log( e^{cos(z, z_g)/t} / (e^{cos(z, z_g)/t} + e^{cos(z, z_p)/t}) ): pulls the features
             z of the trained network towards those of the global one, z_g, and away from those of the client's
             own last one, z_p; t is the temperature

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020 (FedProx).
Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021 (MOON).

Design choices. Features are the inputs of the head; there is no projection head, which would add weights to send. If
only the head is trained, features never change and MOON has no effect. In a client's first turn there is no last
network, so the global one is used, z_p = z_g, and l = log 2 is constant. The two other networks are evaluated without
gradients (unlike in the published code), in evaluation mode, each with its own running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from subbit.core.devices import host
from subbit.core.errors import ModelError
from subbit.core.registry import make_registry, register
from subbit.core.values import require
from subbit.data.examples import Examples
from subbit.local.training import PLAIN, Hooks
from subbit.models.flat import FlatModel
from subbit.models.select import find_head
from subbit.models.task import Task, Turn

make_registry("regulariser")
PREVIOUS = "previous-"


class Regulariser(Protocol):
    name: ClassVar[str]
    per_example: ClassVar[bool]
    """Whether the gradient of a batch is a sum over its examples, as privacy requires."""

    def check(self, task: Task) -> None:
        """Raise for a module that is not supported."""

    def begin(self, task: Task, trained: Tensor, turn: Turn) -> Hooks:
        """Called before training, when `trained` and the flat model still hold what was received."""

    def end(self, task: Task, trained: Tensor, turn: Turn) -> None:
        """Called after training."""


@register("regulariser", "none")
@dataclass(frozen=True)
class NoRegulariser:
    """No regularisation."""

    name: ClassVar[str] = "none"
    per_example: ClassVar[bool] = True

    def check(self, task: Task) -> None:
        pass

    def begin(self, task: Task, trained: Tensor, turn: Turn) -> Hooks:
        return PLAIN

    def end(self, task: Task, trained: Tensor, turn: Turn) -> None:
        pass


@register("regulariser", "fedprox")
@dataclass(frozen=True)
class FedProx:
    """Pulls the trained vector towards the received one."""

    name: ClassVar[str] = "fedprox"
    per_example: ClassVar[bool] = True
    mu: float = 0.01
    """Strength of the pull towards the received vector."""

    def __post_init__(self) -> None:
        require(self.mu >= 0, f"mu={self.mu}: needs a number from 0 up")

    def check(self, task: Task) -> None:
        pass

    def begin(self, task: Task, trained: Tensor, turn: Turn) -> Hooks:
        received = trained.clone()

        def pull(trained: Tensor, gradient: Tensor) -> None:
            """Adds the gradient of mu/2 |trained - received|^2 to that of the loss."""
            gradient.add_(trained - received, alpha=self.mu)

        return Hooks(adjust=pull)

    def end(self, task: Task, trained: Tensor, turn: Turn) -> None:
        pass


@register("regulariser", "moon")
@dataclass(frozen=True)
class Moon:
    """Contrasts features with those of the global network and of the client's own last one."""

    name: ClassVar[str] = "moon"
    per_example: ClassVar[bool] = False
    mu: float = 1.0
    """Weight of the contrastive loss."""
    temperature: float = 0.5

    def __post_init__(self) -> None:
        require(self.mu >= 0, f"mu={self.mu}: needs a number from 0 up")
        require(self.temperature > 0, f"temperature={self.temperature}: needs a number above 0")

    def check(self, task: Task) -> None:
        self._head(task)  # Reject a module without a head now, not in every client.

    def _head(self, task: Task) -> nn.Module:
        """The layer whose inputs are the features."""
        return task.flat.module.get_submodule(find_head(task.flat.module))

    def begin(self, task: Task, trained: Tensor, turn: Turn) -> Hooks:
        received = _network(task.flat, trained)
        previous = {name: turn.memory.get(PREVIOUS + name, vector) for name, vector in received.items()}
        return Hooks(objective=Contrast(task, self._head(task), (received, previous), self))

    def end(self, task: Task, trained: Tensor, turn: Turn) -> None:
        for name, vector in _network(task.flat, trained).items():
            turn.memory[PREVIOUS + name] = vector


def _network(flat: FlatModel, trained: Tensor) -> dict[str, NDArray[np.float32]]:
    network = {"weights": host(trained).copy()}
    return network if flat.statistics is None else {**network, "statistics": host(flat.statistics).copy()}


class Contrast:
    """The loss plus `mu` times the contrast with the global and the previous network."""

    def __init__(
        self,
        task: Task,
        head: nn.Module,
        networks: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]],
        moon: Moon,
    ) -> None:
        self.task, self.flat, self.head = task, task.flat, head
        self.networks = [{name: task.flat.place(values) for name, values in one.items()} for one in networks]
        self.strength, self.temperature = moon.mu, moon.temperature

    def __call__(self, batch: Examples) -> Tensor:
        # The other networks first: weights must not change between the forward and the backward pass.
        towards, away = self._others_features(batch)
        logits, features = self._forward(batch)
        return self.task.objective.loss(logits, batch) + self.strength * contrast(
            features, towards, away, self.temperature
        )

    def _forward(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Outputs and features; for any module, features are the inputs of its head."""
        seen: list[Tensor] = []
        handle = self.head.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
        try:
            logits = self.task.outputs(batch)
        finally:
            handle.remove()
        if not seen:
            raise ModelError("moon: the forward pass never calls the head, so there are no features to contrast")
        return logits, seen[-1].flatten(1)

    @torch.no_grad()
    def _others_features(self, batch: Examples) -> list[Tensor]:
        flat, features = self.flat, []
        trained, statistics = flat.weights.clone(), None if flat.statistics is None else flat.statistics.clone()
        flat.evaluation_mode()
        for network in self.networks:
            flat.weights.copy_(network["weights"])
            if flat.statistics is not None:
                flat.statistics.copy_(network["statistics"])
            features.append(self._forward(batch)[1])
        flat.weights.copy_(trained)
        if flat.statistics is not None and statistics is not None:
            flat.statistics.copy_(statistics)
        flat.training_mode()
        return features


def contrast(features: Tensor, towards: Tensor, away: Tensor, temperature: float) -> Tensor:
    """Mean over the batch of -log softmax([cos(z, z_g), cos(z, z_p)] / temperature)[0]."""
    similar = functional.cosine_similarity(features, towards)
    different = functional.cosine_similarity(features, away)
    return functional.softplus((different - similar) / temperature).mean()
