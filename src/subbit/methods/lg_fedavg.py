"""LG-FedAvg: every client has its own lower layers; only the last layers are shared.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: "Think Locally, Act Globally: Federated Learning with
Local and Global Representations", 2020.

    down   the last `global_layers` layers
    client trains them together with its own lower layers, which it keeps
    up     the change of the last layers
    server the mean of the changes
    use    the client's own lower layers with the received last layers

A layer is a module with trained parameters of its own; the head counts as one layer, the last, however many modules it
has. In its first turn a client uses the initial lower layers. Running statistics (`batchnorm=average`) belong to the
lower layers and stay with the client.

Design choices. The published code starts from a model trained with several hundred rounds of FedAvg; here the start is
the given module, pre-trained or not. The published code weights clients equally (`weighting=clients`); the default here
is by examples. It reports each client's best network on the test set; here it is the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.codecs import Vector
from subbit.core.devices import host
from subbit.core.errors import ModelError
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.exchange.exchange import State, Update
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import BoundMap
from subbit.maps.weights import Weights
from subbit.methods.method import Method
from subbit.models.flat import FlatModel
from subbit.models.reparametrisation import Identity
from subbit.models.select import find_head
from subbit.models.task import Task, Turn


@dataclass(frozen=True)
class LgFedAvgParameters:
    global_layers: int = 2
    """How many layers, counted from the last, are shared."""
    local: Local = Local()
    up: VectorUp = VectorUp()
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()

    def __post_init__(self) -> None:
        require(self.global_layers >= 1, f"global_layers={self.global_layers}: needs at least 1")


class CommonLayers(BoundMap):
    """The part of the weights that is sent."""

    def __init__(self, task: Task, common: NDArray[np.bool_]) -> None:
        self.flat, self.common = task.flat, common
        self.size = int(common.sum())
        self.network = Identity(self.size)

    def start(self) -> Vector:
        weights: Vector = host(self.flat.weights)[self.common]
        return weights

    def known(self) -> Vector:
        weights: Vector = host(self.flat.initial)[self.common]
        return weights

    def write(self, vector: Vector, network: str, key: int) -> None:
        """Write the network of a new client: the shared layers over the initial lower layers."""
        weights = host(self.flat.initial).copy()
        weights[self.common] = vector
        self.flat.weights.detach().copy_(torch.from_numpy(weights))


class LgFedAvg(Method[LgFedAvgParameters]):
    name = "lg-fedavg"
    title = "LG-FedAvg: local lower layers, common last layers"
    paper = "baseline"
    citation = (
        "Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, 2020"
    )
    sends_up = "change of the last layers, float32 or compressed"
    sends_down = "last layers, float32, or their compressed change"
    Parameters = LgFedAvgParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.5, "weighting": "clients"},
    }
    personal = True

    def __init__(self, parameters: LgFedAvgParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.common = last_layers(task.flat, parameters.global_layers)
        """Which places of the flat vector are shared."""
        self.map = CommonLayers(task, self.common)
        self.trainer = Trainer(task, parameters.local, Weights(task))
        self.exchange: VectorExchange = VectorExchange(task, parameters, self.map)
        # Training writes running statistics into the module, so the initial ones are copied before the first turn.
        self._statistics = None if task.flat.statistics is None else host(task.flat.statistics).copy()

    def train(self, view: dict[str, Vector], data: Data, turn: Turn) -> Update:
        own = self._own(view, turn)
        self.write(own)
        trained = torch.from_numpy(own["weights"])
        observed = self.trainer.train(trained, data, turn)
        turn.memory["lower"] = trained.numpy()[~self.common]
        if self.task.flat.statistics is not None:
            turn.memory["statistics"] = host(self.task.flat.statistics).copy()
        payloads, _ = self.exchange.say(view, trained[torch.from_numpy(self.common)], turn)
        return Update(payloads, len(data), observed)

    def personalise(self, view: Any, data: Data, turn: Turn) -> None:
        self.write(self._own(view, turn))

    def _own(self, view: dict[str, Any], turn: Turn) -> dict[str, Vector]:
        """The client's network: its lower layers (the initial ones in its first turn) and the shared last layers."""
        weights = host(self.task.flat.initial).copy()
        if "lower" in turn.memory:
            weights[~self.common] = turn.memory["lower"]
        weights[self.common] = view["weights"]
        if self._statistics is None:
            return {"weights": weights}
        return {"weights": weights, "statistics": turn.memory.get("statistics", self._statistics)}

    def write_network(self, state: State, network: str, key: int) -> None:
        self.write(self._own(state, Turn(0, 0, {})))


def last_layers(flat: FlatModel, count: int) -> NDArray[np.bool_]:
    """The places of the last `count` layers; the head is the last layer."""
    try:
        head = find_head(flat.module)
    except ModelError:
        head = None  # No head: only the module's order counts.
    layers = [layer_of(name, head) for name in flat.template.names]
    in_order = [layer for layer in dict.fromkeys(layers) if layer != head]
    in_order += [head] if head in layers else []
    common = in_order[-count:]
    return np.repeat([layer in common for layer in layers], flat.template.counts)


def layer_of(name: str, head: str | None) -> str | None:
    """The module that owns the parameter, or the head if the parameter is inside it."""
    owner = name.rpartition(".")[0]
    return head if head is not None and f"{owner}.".startswith(f"{head}.") else owner
