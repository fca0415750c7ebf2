"""Per-FedAvg: not a good model for all, but one from which a single local step is good for each.

Fallah, Mokhtari, Ozdaglar: "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach", NeurIPS 2020; its first-order variant, without second derivatives.

    down   w
    client in every step, with the two halves B1, B2 of a batch:
               w' = w - a g(w; B1)
               w <- w - b g(w'; B2)           b and its optimiser are those of local training
    up     the change of w
    server w <- w + weighted mean of the changes
    use    w - a g(w; B), one step (or one epoch) on the client's own training data

Decisions. a = b unless `inner_learning_rate` says otherwise. A batch of fewer than four examples serves as both halves:
a half is never empty, where published code divides by nothing, and never a single example, on which BatchNorm cannot
train. With `batchnorm=average` only the second pass, that of the adapted network, moves the running statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subbit.config.values import require
from subbit.data.batches import batches
from subbit.data.examples import Examples
from subbit.methods.base import Turn
from subbit.methods.local import LocalTraining, train_locally
from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod
from subbit.models.reparametrisation import Identity
from subbit.randomness import derive_key

LEAST_TO_SPLIT = 4


@dataclass(frozen=True)
class PerFedAvgParameters(WeightParameters):
    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.05
    momentum: float = 0.0
    inner_learning_rate: float | Literal["same"] = "same"
    """Step size of the adaptation, in training and in use; `same` as `learning_rate`."""
    adaptation: Literal["step", "epoch"] = "step"
    """What a client does with the model before it uses it: one SGD step on one batch, or one epoch of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.inner_learning_rate
        require(
            rate == "same" or 0 <= rate < math.inf, f"inner_learning_rate={rate}: needs a number from 0 up, or same"
        )

    @property
    def inner_rate(self) -> float:
        return self.learning_rate if self.inner_learning_rate == "same" else self.inner_learning_rate


class PerFedAvg(WeightMethod[PerFedAvgParameters]):
    name = "per-fedavg"
    title = "Per-FedAvg: a model that is good after one local step"
    paper = "baseline"
    citation = "Fallah et al., Personalized Federated Learning with Theoretical Guarantees, NeurIPS 2020"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = PerFedAvgParameters
    presets: ClassVar = {"default": {}, "paper": {"learning_rate": 0.01}}
    personal = True

    def train_weights(self, trained: Tensor, data: Examples, turn: Turn) -> float:
        backward = self._gradient_after_a_step
        return train_locally(self.task, self.parameters, Identity(self.size), trained, data, turn, backward=backward)

    def _gradient_after_a_step(self, batch: Examples) -> float:
        """g(w - a g(w; B1); B2), left in the flat model, and the loss that it is the gradient of."""
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
        flat = self.task.flat
        flat.zero_gradient()
        loss = functional.cross_entropy(flat.module(batch.inputs), batch.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def personalise(self, view: Any, data: Examples, turn: Turn) -> None:
        self.write(view)
        parameters, where = self.parameters, (turn.round_number, turn.client)
        if parameters.adaptation == "step":
            key = derive_key(self.task.seed, "adaptation", *where)
            data = data.select(next(batches(len(data), parameters.batch_size, key)))
        adaptation = LocalTraining(
            batch_size=parameters.batch_size, optimizer="sgd", learning_rate=parameters.inner_rate, momentum=0.0
        )
        trained = torch.from_numpy(view["weights"].copy())
        train_locally(self.task, adaptation, Identity(self.size), trained, data, turn)
        with torch.no_grad():
            self.task.flat.weights.copy_(trained)


def halves(batch: Examples) -> tuple[Examples, Examples]:
    if len(batch) < LEAST_TO_SPLIT:
        return batch, batch
    first, second = np.array_split(np.arange(len(batch)), 2)
    return batch.select(first), batch.select(second)
