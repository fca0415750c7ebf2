"""What references without a federation share: scores on frozen weights, trained where all the data are.

    down   s, float32
    client goes on training s where its last turn ended: the optimiser's moments stay with the client
    up     s after training, float32
    server s <- mean of the clients' scores, weighted by examples

With one client that is the central algorithm itself: the mean of one vector is that vector, and an epoch is numbered,
and its batches and masks drawn, by how many came before it. So R rounds of one epoch end, bit for bit, where one round
of R epochs does. With several clients it is FedAvg on scores, at 32 bits per parameter each way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.codecs import make_codec
from subbit.data.examples import Examples
from subbit.exchange.honest import FAR, largest
from subbit.methods.base import Method, ParametersType, Part, Payloads, State, Turn, Update, as_float32
from subbit.methods.local import train_locally
from subbit.methods.masks import MaskMethod
from subbit.models.reparametrisation import Reparametrisation

MOMENT = "optimizer-"  # Begins the names of the optimiser's moments in a client's memory.


class CentralScores(Method[ParametersType]):
    """Base of `supermask` and `edge-popup`. `Parameters` extends `LocalTraining`."""

    sends_up = "scores, float32"
    sends_down = "scores, float32"
    trains_added_values = False
    default_selection = staticmethod(MaskMethod.default_selection)
    reparametrisation: Reparametrisation
    parameters: Any

    def initial_scores(self) -> NDArray[np.float32]:
        raise NotImplementedError

    def constrain(self, scores: Tensor) -> None:
        """What scores are kept to after each step, in place."""

    # What travels.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part("scores", make_codec("dense"), self.size),)

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("scores", make_codec("dense"), self.size),)

    def open(self, payloads: Payloads, round_number: int) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = payloads["scores"]
        return scores

    # The server half.

    def start(self) -> State:
        return {"scores": self.initial_scores()}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {"scores": state["scores"]}

    def farthest(self, part: Part, view: NDArray[np.float32]) -> float:
        return FAR * max(1.0, largest(view))

    def accumulator(self) -> WeightedMean:
        return WeightedMean(sum(part.size for part in self.up_parts()))

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.add(np.concatenate([payloads[part.name] for part in self.up_parts()]), examples)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        if accumulator.weight == 0:
            return state  # Nobody who answered claims an example: there is no mean.
        return {"scores": as_float32(accumulator.mean()[: self.size])}

    # The client half.

    def train(self, view: NDArray[np.float32], data: Examples, turn: Turn) -> Update:
        scores, loss = self.train_scores(view, data, turn)
        return Update({"scores": scores.numpy()}, len(data), {"loss": loss})

    def train_scores(self, view: NDArray[np.float32], data: Examples, turn: Turn) -> tuple[Tensor, float]:
        """Scores after the epochs of this turn, and the mean loss of the last one."""
        scores, loss = torch.from_numpy(view.copy()), 0.0
        optimizer: torch.optim.Optimizer = self.parameters.make_optimizer(scores)
        _recall(optimizer, scores, turn.memory)
        # An epoch takes the place of a round: all keys then follow from its number, and so does the learning rate.
        epochs = self.parameters.epochs
        task = replace(self.task, rounds=self.task.rounds * epochs)
        settings = replace(self.parameters, epochs=1, warmup_rounds=self.parameters.warmup_rounds * epochs)
        for epoch in range(turn.round_number * epochs, (turn.round_number + 1) * epochs):
            for group in optimizer.param_groups:
                group["lr"] = self.parameters.learning_rate
            numbered = Turn(epoch, turn.client, turn.memory)
            loss = train_locally(
                task,
                settings,
                self.reparametrisation,
                scores,
                data,
                numbered,
                constrain=self.constrain,
                optimizer=optimizer,
            )
        _remember(optimizer, scores, turn.memory)
        return scores, loss


def _recall(optimizer: torch.optim.Optimizer, scores: Tensor, memory: dict[str, NDArray[Any]]) -> None:
    kept = {
        name.removeprefix(MOMENT): torch.from_numpy(moment.copy())
        for name, moment in memory.items()
        if name.startswith(MOMENT)
    }
    if kept:
        optimizer.state[scores] = kept


def _remember(optimizer: torch.optim.Optimizer, scores: Tensor, memory: dict[str, NDArray[Any]]) -> None:
    for name, moment in optimizer.state[scores].items():
        if isinstance(moment, Tensor):
            memory[MOMENT + name] = moment.detach().numpy().copy()
