"""LG-FedAvg: every client has its own lower layers; only the last ones are common.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: "Think Locally, Act Globally: Federated Learning with
Local and Global Representations", 2020.

    down   the last `global_layers` layers
    client trains them together with its own lower layers, which it keeps
    up     the change of the last layers
    server the mean of the changes
    use    the client's own lower layers under the last layers as received

A layer is a module that has trained parameters of its own; the head, however many layers it has, is one, and the last.
In its first turn a client takes the lower layers with which everybody started. Running statistics (`batchnorm=average`)
belong to the lower layers and stay with the client.

Decisions. The published code starts from the model of several hundred rounds of FedAvg: here that start is the module
that the run is given, pre-trained or not. It averages clients alike (`weighting=uniform`), the default here is by
examples, and it reports each client's best network on the test set, where ours is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.aggregate import TrimmedMean, WeightedMean
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ModelError
from subbit.methods.base import Held, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod
from subbit.models.flat import FlatModel
from subbit.models.selection import find_head


@dataclass(frozen=True)
class LgFedAvgParameters(WeightParameters):
    global_layers: int = 2
    """How many layers, from the last one down, are common."""
    weighting: Literal["examples", "uniform"] = "examples"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.global_layers >= 1, f"global_layers={self.global_layers}: needs at least 1")


class LgFedAvg(WeightMethod[LgFedAvgParameters]):
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
        "paper": {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.5, "weighting": "uniform"},
    }
    personal = True

    def __init__(self, parameters: LgFedAvgParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.common = last_layers(task.flat, parameters.global_layers)
        """Which places of the flat vector are common."""
        # Training writes running statistics into the module: the start is taken down before the first turn.
        self._statistics = None if task.flat.statistics is None else task.flat.statistics.numpy().copy()

    def known_parts(self) -> tuple[Part, ...]:
        part = super().known_parts()[0]
        return (Part(part.name, part.codec, int(self.common.sum())),)

    def up_parts(self) -> tuple[Part, ...]:
        part = super().up_parts()[0]
        return (Part(part.name, part.codec, int(self.common.sum())),)

    # The client half.

    def train(self, view: dict[str, NDArray[np.float32]], data: Examples, turn: Turn) -> Update:
        own = self._own(view, turn)
        self.write(own)
        trained = torch.from_numpy(own["weights"])
        loss = self.train_weights(trained, data, turn)
        turn.memory["lower"] = trained.numpy()[~self.common]
        if self.task.flat.statistics is not None:
            turn.memory["statistics"] = self.task.flat.statistics.numpy().copy()
        change = as_float32(trained.numpy()[self.common] - view["weights"])
        if self.parameters.remembers_losses:
            change = self._with_what_was_lost(change, view, turn)
        return Update({"weights": change}, len(data), {"loss": loss})

    def personalise(self, view: Any, data: Examples, turn: Turn) -> None:
        self.write(self._own(view, turn))

    def _own(self, view: dict[str, Any], turn: Turn) -> dict[str, NDArray[np.float32]]:
        """The client's network: its lower layers, or in its first turn everybody's, under the common last ones."""
        weights = self.task.flat.initial.numpy().copy()
        if "lower" in turn.memory:
            weights[~self.common] = turn.memory["lower"]
        weights[self.common] = view["weights"]
        if self._statistics is None:
            return {"weights": weights}
        return {"weights": weights, "statistics": turn.memory.get("statistics", self._statistics)}

    # The server half.

    def first(self) -> Held:
        return {"weights": self.task.flat.initial.numpy()[self.common]}

    def start(self) -> State:
        return {"weights": self.task.flat.weights.detach().numpy()[self.common]}

    def accumulate(
        self,
        accumulator: WeightedMean | TrimmedMean,
        view: Any,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        weight = min(examples, 1) if self.parameters.weighting == "uniform" else examples
        super().accumulate(accumulator, view, payloads, weight, round_number, client)

    def write_network(self, state: State, network: str, key: int) -> None:
        """The common layers over the lower ones with which everybody started: a newcomer's network."""
        newcomer = Turn(0, 0, {})
        self.write(self._own(state, newcomer))


def last_layers(flat: FlatModel, count: int) -> NDArray[np.bool_]:
    """The places of the last `count` layers, the head being the very last."""
    try:
        head = find_head(flat.module)
    except ModelError:
        head = None  # Then only the order of the module counts.
    layers = [layer_of(name, head) for name in flat.template.names]
    in_order = [layer for layer in dict.fromkeys(layers) if layer != head]
    in_order += [head] if head in layers else []
    common = in_order[-count:]
    return np.repeat([layer in common for layer in layers], flat.template.counts)


def layer_of(name: str, head: str | None) -> str | None:
    """The module that owns the parameter, or the head, whatever is in it."""
    owner = name.rpartition(".")[0]
    return head if head is not None and f"{owner}.".startswith(f"{head}.") else owner
