"""Standalone: every client trains by itself, and nothing is ever sent. What federation has to beat.

    down   nothing
    client goes on training its own weights where its last turn left them
    up     nothing
    server nothing

The first turn of a client starts from the weights that everybody has; if the run fits a head, that head is the one
thing that a client receives, once, and its bytes are one-off costs. A round is then no more than a slice of training
time: give standalone clients more `epochs` (or `participation=1`) where the comparison is at equal training.

A run's model is that common start, since there is no other common network; accuracy is the mean over clients of each
one's own network on its own test set.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

from subbit.aggregate import WeightedMean
from subbit.data.examples import Examples
from subbit.methods.base import Part, Payloads, State, Task, Turn, Update
from subbit.methods.local import LocalTraining
from subbit.methods.weights import WeightMethod


class Standalone(WeightMethod[LocalTraining]):
    name = "standalone"
    title = "Standalone: every client trains alone"
    paper = "baseline"
    citation = "Li et al., FedMask, SenSys 2021 (as its baseline; no communication at all)"
    sends_up = "nothing"
    sends_down = "nothing"
    Parameters = LocalTraining
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.5, "epochs": 5},
    }
    personal = True

    def __init__(self, parameters: LocalTraining, task: Task) -> None:
        super().__init__(parameters, task)
        # Training writes running statistics into the module: the start is taken down before the first turn.
        statistics = task.flat.statistics
        self._statistics = None if statistics is None else statistics.numpy().copy()

    def down_parts(self) -> tuple[Part, ...]:
        return ()

    def up_parts(self) -> tuple[Part, ...]:
        return ()

    def train(self, view: Any, data: Examples, turn: Turn) -> Update:
        own = self._own(turn)
        self.write(own)
        trained = torch.from_numpy(own["weights"].copy())
        loss = self.train_weights(trained, data, turn)
        turn.memory["weights"] = trained.numpy()
        if self.task.flat.statistics is not None:
            turn.memory["statistics"] = self.task.flat.statistics.numpy().copy()
        return Update({}, len(data), {"loss": loss})

    def personalise(self, view: Any, data: Examples, turn: Turn) -> None:
        self.write(self._own(turn))

    def _own(self, turn: Turn) -> dict[str, NDArray[Any]]:
        start = {"weights": self.task.flat.initial.numpy()}
        if self._statistics is not None:
            start["statistics"] = self._statistics
        return {name: turn.memory.get(name, vector) for name, vector in start.items()}

    def accumulator(self) -> WeightedMean:
        return WeightedMean(0)

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """There is nothing to add."""

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        return state
