"""FedProx and MOON: two ways to keep local training near the global model, for every method that trains weights.

    fedprox  loss + mu/2 |w - w_g|^2 over what is trained: pulls the weights
    moon     loss + mu l, l = -log( e^{cos(z, z_g)/t} / (e^{cos(z, z_g)/t} + e^{cos(z, z_p)/t}) ): pulls the features
             z of the network in training towards those of the global one, z_g, away from those of the client's own
             last one, z_p; t is the temperature

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020 (FedProx).
Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021 (MOON).

To give both to a method, derive its parameters from `RegularisedParameters` (keys `regulariser`, `mu`, `temperature`)
and the method from `RegularisedMethod`. One that calls `train_locally` itself passes `**self.regulariser(trained,
turn)` on to it and calls `self.remember(trained, turn)` afterwards. `fedprox` and `moon` are those two classes with
the key fixed.

Decisions. Features are what enters the head; there is no projection head, which would be further weights to send.
Where only the head is trained, features never change and MOON has no effect. A client's first turn has no last network:
the global one stands in, z_p = z_g, and l = log 2 whatever is trained. The two other networks are evaluated without
gradient (the published code lets the optimiser see it), in evaluation mode, each with its own running statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError, ModelError
from subbit.methods.base import ParametersType, Task, Turn
from subbit.methods.local import train_locally
from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod
from subbit.models.flat import FlatModel
from subbit.models.reparametrisation import Identity
from subbit.models.selection import find_head

DEFAULT_MU = {"none": 0.0, "fedprox": 0.01, "moon": 1.0}
PREVIOUS = "previous-"


class Hooks(TypedDict, total=False):
    """What `train_locally` takes."""

    adjust: Callable[[Tensor, Tensor, int, int], object]
    objective: Callable[[Examples], Tensor]


@dataclass(frozen=True)
class RegularisedParameters(WeightParameters):
    regulariser: Literal["none", "fedprox", "moon"] = "none"
    mu: float | Literal["auto"] = "auto"
    """Weight of the regulariser. `auto`: 0.01 for fedprox, 1 for moon."""
    temperature: float = 0.5
    """For `moon`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mu == "auto" or self.mu >= 0, f"mu={self.mu}: needs a number from 0 up, or auto")
        require(self.temperature > 0, f"temperature={self.temperature}: needs a number above 0")

    @property
    def strength(self) -> float:
        return DEFAULT_MU[self.regulariser] if self.mu == "auto" else self.mu


class RegularisedMethod(WeightMethod[ParametersType]):
    """A method whose local training may be regularised. `Parameters` extends `RegularisedParameters`."""

    private = True

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        if self.parameters.regulariser == "moon":
            if self.mechanism is not None:
                raise ConfigError("privacy: moon contrasts whole batches, so that no gradient is that of one example")
            self.head()  # A module without a head is refused now, and not by every client.

    def head(self) -> nn.Module:
        """The layer whose inputs are the features."""
        module = self.task.flat.module
        return module.get_submodule(find_head(module))

    def train_weights(self, trained: Tensor, data: Examples, turn: Turn) -> float:
        hooks = self.regulariser(trained, turn)
        backward = self.backward(data, turn)
        network = Identity(self.size)
        loss = train_locally(self.task, self.parameters, network, trained, data, turn, backward=backward, **hooks)
        self.remember(trained, turn)
        return loss

    def regulariser(self, trained: Tensor, turn: Turn) -> Hooks:
        """To be called before training, when `trained` and the flat model still hold what was received."""
        kind, strength = self.parameters.regulariser, self.parameters.strength
        if kind == "fedprox":
            return {"adjust": pull_towards(trained.clone(), strength)}
        if kind == "moon":
            received = self._network(trained)
            previous = {name: turn.memory.get(PREVIOUS + name, vector) for name, vector in received.items()}
            networks = (received, previous)
            return {"objective": Contrast(self.task.flat, self.head(), networks, strength, self.parameters.temperature)}
        return {}

    def remember(self, trained: Tensor, turn: Turn) -> None:
        """To be called after training: what the next turn of this client contrasts itself with."""
        if self.parameters.regulariser == "moon":
            for name, vector in self._network(trained).items():
                turn.memory[PREVIOUS + name] = vector

    def _network(self, trained: Tensor) -> dict[str, NDArray[np.float32]]:
        statistics = self.task.flat.statistics
        network = {"weights": trained.detach().numpy().copy()}
        return network if statistics is None else {**network, "statistics": statistics.numpy().copy()}


def pull_towards(received: Tensor, strength: float) -> Callable[[Tensor, Tensor, int, int], object]:
    """The gradient of strength/2 |trained - received|^2, added to that of the loss."""

    def adjust(trained: Tensor, gradient: Tensor, epoch: int, step: int) -> None:
        gradient.add_(trained - received, alpha=strength)

    return adjust


class Contrast:
    """Cross entropy, and `strength` times the contrast to the global and to the previous network."""

    def __init__(
        self,
        flat: FlatModel,
        head: nn.Module,
        networks: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]],
        strength: float,
        temperature: float,
    ) -> None:
        self.flat, self.head, self.networks = flat, head, networks
        self.strength, self.temperature = strength, temperature

    def __call__(self, batch: Examples) -> Tensor:
        # First the others: in between the forward and the backward pass nobody may write to the weights.
        towards, away = self._others_features(batch)
        logits, features = self._forward(batch)
        return functional.cross_entropy(logits, batch.labels) + self.strength * contrast(
            features, towards, away, self.temperature
        )

    def _forward(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Outputs and features: whatever the module is, features are what its head is given."""
        seen: list[Tensor] = []
        handle = self.head.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
        try:
            logits = self.flat.module(batch.inputs)
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
            flat.weights.copy_(torch.from_numpy(network["weights"]))
            if flat.statistics is not None:
                flat.statistics.copy_(torch.from_numpy(network["statistics"]))
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
