"""Standalone: every client trains by itself and nothing is sent. The baseline that federation has to beat.

    down   nothing
    client continues training its own weights from its last turn
    up     nothing
    server nothing

A client's first turn starts from the initial weights. If the run fits a head, clients receive it once, and its bytes
are one-off costs. A round is only a slice of training time: for comparisons at equal training give standalone clients
more `epochs` (or `participation=1`).

The run's model is the common start, since there is no other common network. Accuracy is the mean over clients of each
client's network on its own test set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

from subbit.aggregate import WeightedMean
from subbit.core.devices import host
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, State, Update
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.weights import Weights
from subbit.methods.method import Method
from subbit.models.task import Task, Turn


@dataclass(frozen=True)
class StandaloneParameters:
    local: Local = Local()


class Standalone(Method[StandaloneParameters]):
    name = "standalone"
    title = "Standalone: every client trains alone"
    paper = "baseline"
    citation = "Li et al., FedMask, SenSys 2021 (as its baseline; no communication at all)"
    sends_up = "nothing"
    sends_down = "nothing"
    Parameters = StandaloneParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.5, "epochs": 5},
    }
    personal = True

    changes = None
    state_is_counts = False

    def __init__(self, parameters: StandaloneParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = Weights(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        # Training writes running statistics into the module, so the initial ones are copied before the first turn.
        statistics = task.flat.statistics
        self._statistics = None if statistics is None else host(statistics).copy()

    def down_parts(self) -> tuple[Part, ...]:
        return ()

    def up_parts(self) -> tuple[Part, ...]:
        return ()

    def train(self, view: Any, data: Data, turn: Turn) -> Update:
        own = self._own(turn)
        self.write(own)
        trained = torch.from_numpy(own["weights"].copy())
        observed = self.trainer.train(trained, data, turn)
        turn.memory["weights"] = trained.numpy()
        if self.task.flat.statistics is not None:
            turn.memory["statistics"] = host(self.task.flat.statistics).copy()
        return Update({}, len(data), observed)

    def personalise(self, view: Any, data: Data, turn: Turn) -> None:
        self.write(self._own(turn))

    def _own(self, turn: Turn) -> dict[str, NDArray[Any]]:
        start = {"weights": host(self.task.flat.initial)}
        if self._statistics is not None:
            start["statistics"] = self._statistics
        return {name: turn.memory.get(name, vector) for name, vector in start.items()}

    def start(self) -> State:
        flat = self.task.flat
        state: State = {"weights": host(flat.weights).copy()}
        return state if flat.statistics is None else {**state, "statistics": host(flat.statistics).copy()}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {}

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    def accumulator(self) -> WeightedMean:
        return WeightedMean(0)

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        """Nothing is uploaded, so there is nothing to check."""

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """Nothing to add."""

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        return state

    def write_network(self, state: State, network: str, key: int) -> None:
        self.write(state)
