"""Per-FedAvg: learns a model that becomes good for each client after a single local step.

Fallah, Mokhtari, Ozdaglar: "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach", NeurIPS 2020; its first-order variant, without second derivatives.

    down   w
    client in every step, with the two halves B1, B2 of a batch:
               w' = w - a g(w; B1)
               w <- w - b g(w'; B2)           b and its optimiser are those of local training
    up     the change of w
    server w <- w + weighted mean of the changes
    use    w - a g(w; B), one step (or one epoch) on the client's own training data

Design choices. a = b unless `inner_learning_rate` is set. A batch of fewer than four examples serves as both halves, so
a half is never empty (published code divides by zero there) and never a single example (on which BatchNorm cannot
train). With `batchnorm=average` only the second pass, through the adapted network, updates the running statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from subbit.core.devices import moved
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.data.batches import batches
from subbit.data.examples import Data, Examples
from subbit.exchange.exchange import Update
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.local.backward import Backward
from subbit.local.optimizers import Sgd
from subbit.local.trainer import Trainer
from subbit.local.training import Hooks, Local, train_locally
from subbit.maps.weights import Weights
from subbit.methods.method import Method
from subbit.models.task import Task, Turn

LEAST_TO_SPLIT = 4


@dataclass(frozen=True)
class PerFedAvgParameters:
    inner_learning_rate: float | Literal["same"] = "same"
    """Step size of the adaptation, in training and in use; `same`: equal to `learning_rate`."""
    adaptation: Literal["step", "epoch"] = "step"
    """How a client adapts the model before using it: one SGD step on one batch, or one epoch."""
    local: Local = Local(optimizer=Sgd(momentum=0.0), learning_rate=0.05)
    up: VectorUp = VectorUp()
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()

    def __post_init__(self) -> None:
        rate = self.inner_learning_rate
        require(
            rate == "same" or 0 <= rate < math.inf, f"inner_learning_rate={rate}: needs a number from 0 up, or same"
        )

    @property
    def inner_rate(self) -> float:
        return self.local.rate if self.inner_learning_rate == "same" else self.inner_learning_rate


class PerFedAvg(Method[PerFedAvgParameters]):
    name = "per-fedavg"
    title = "Per-FedAvg: a model that is good after one local step"
    paper = "baseline"
    citation = "Fallah et al., Personalized Federated Learning with Theoretical Guarantees, NeurIPS 2020"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = PerFedAvgParameters
    presets: ClassVar = {"default": {}, "paper": {"learning_rate": 0.01}}
    personal = True

    def __init__(self, parameters: PerFedAvgParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = Weights(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = VectorExchange(task, parameters, self.map)

    def train(self, view: Any, data: Data, turn: Turn) -> Update:
        trained = self.exchange.trained(view)
        observed = self.trainer.train(trained, data, turn, Hooks(backward=self._gradient_after_a_step))
        payloads, _ = self.exchange.say(view, trained, turn)
        return Update(payloads, len(data), observed)

    def _gradient_after_a_step(self, batch: Examples) -> float:
        """Leaves g(w - a g(w; B1); B2) in the flat model and returns the loss on B2."""
        flat = self.task.flat
        first, second = halves(batch)
        statistics = None if flat.statistics is None else flat.statistics.clone()
        self._gradient(first)
        with torch.no_grad():
            flat.weights.sub_(flat.gradient, alpha=self.parameters.inner_rate)
            if flat.statistics is not None and statistics is not None:
                flat.statistics.copy_(statistics)
        return self._gradient(second)

    def _gradient(self, batch: Examples) -> float:
        return Backward(self.task, None, self.parameters.local.micro_batch)(batch)

    def personalise(self, view: Any, data: Data, turn: Turn) -> None:
        self.write(view)
        parameters, local = self.parameters, self.parameters.local
        if parameters.adaptation == "step":
            key = derive_key(self.task.seed, "adaptation", turn.round_number, turn.client)
            data = data.select(next(batches(len(data), local.batch_size, key)))
        adaptation = Local(
            batch_size=local.batch_size,
            micro_batch=local.micro_batch,
            optimizer=Sgd(momentum=0.0),
            learning_rate=parameters.inner_rate,
        )
        trained = torch.from_numpy(view["weights"].copy())
        with moved(trained, self.task.flat.device) as there:
            train_locally(self.task, adaptation, self.map.network, there, data, turn)
        with torch.no_grad():
            self.task.flat.weights.copy_(trained)


def halves(batch: Examples) -> tuple[Examples, Examples]:
    if len(batch) < LEAST_TO_SPLIT:
        return batch, batch
    first, second = np.array_split(np.arange(len(batch)), 2)
    return batch.select(first), batch.select(second)
