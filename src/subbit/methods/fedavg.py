"""FedAvg: clients fine-tune the selected weights themselves; the server adds the weighted mean of their changes.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.

    down   w
    client w_k = w after local training
    up     w_k - w
    server w <- w + sum_k n_k (w_k - w) / sum_k n_k

`select` decides what is trained: "all" is full fine-tuning, "head" linear probing. With `batchnorm="average"` the
running statistics of BatchNorm layers travel as a second part and are averaged the same way; otherwise they never
change.

A client that lies can move a mean as far as it likes. `aggregator` and `clip_norm` bound what one client can do, and
then every client has the same weight, since the number of examples is the client's word too: see
`subbit.aggregate.robust`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.aggregate import MEDIAN, TrimmedMean, WeightedMean, clip_to_norm
from subbit.codecs import make_codec
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import Method, Part, Payloads, State, Turn, Update, as_float32
from subbit.methods.local import LocalTraining, train_locally
from subbit.models.reparametrisation import Identity


@dataclass(frozen=True)
class FedAvgParameters(LocalTraining):
    learning_rate: float = 1e-3
    aggregator: Literal["mean", "trimmed", "median"] = "mean"
    """How changes become one: by weight of examples, or robustly, coordinate by coordinate, all clients alike."""
    trim: float = 0.1
    """For `trimmed`: the share of clients, rounded up, that is dropped at each end."""
    clip_norm: float | None = None
    """Longer changes are scaled down to this norm, and all clients weigh the same; none: no bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm={self.clip_norm}: needs a number above 0")


class FedAvg(Method[FedAvgParameters]):
    name = "fedavg"
    title = "FedAvg: fine-tuning of the weights themselves"
    paper = "baseline"
    citation = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    sends_up = "change of the trained weights, float32"
    sends_down = "trained weights, float32"
    Parameters = FedAvgParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.0, "epochs": 5},
    }
    networks = ("trained",)
    trains_added_values = True
    primary_network = "trained"

    def down_parts(self) -> tuple[Part, ...]:
        return self._parts()

    def up_parts(self) -> tuple[Part, ...]:
        return self._parts()

    def _parts(self) -> tuple[Part, ...]:
        parts = [Part("weights", make_codec("dense"), self.size)]
        if self.task.flat.statistics is not None:
            parts.append(Part("statistics", make_codec("dense"), self.task.flat.statistics.numel()))
        return tuple(parts)

    def start(self) -> State:
        flat = self.task.flat
        state: State = {"weights": flat.weights.detach().numpy().copy()}
        if flat.statistics is not None:
            state["statistics"] = flat.statistics.numpy().copy()
        return state

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return dict(state)

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    def train(self, view: dict[str, NDArray[np.float32]], data: Examples, turn: Turn) -> Update:
        self._write(view)
        trained = torch.from_numpy(view["weights"].copy())
        loss = train_locally(self.task, self.parameters, Identity(self.size), trained, data, turn)
        after = {"weights": trained.numpy()}
        if self.task.flat.statistics is not None:
            after["statistics"] = self.task.flat.statistics.numpy()
        changes = {name: as_float32(after[name] - view[name]) for name in after}
        return Update(changes, len(data), {"loss": loss})

    def accumulator(self) -> WeightedMean | TrimmedMean:
        size = sum(part.size for part in self.up_parts())
        if self.parameters.aggregator == "mean":
            return WeightedMean(size)
        return TrimmedMean(size, MEDIAN if self.parameters.aggregator == "median" else self.parameters.trim)

    def accumulate(
        self,
        accumulator: WeightedMean | TrimmedMean,
        view: Any,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        changes, bound = [payloads[part.name] for part in self.up_parts()], self.parameters.clip_norm
        if bound is not None:
            # Each part by itself: running statistics move further than weights and would use up a common bound.
            changes, examples = [clip_to_norm(change, bound) for change in changes], min(examples, 1)
        accumulator.add(np.concatenate(changes), examples)

    def step(self, state: State, accumulator: WeightedMean | TrimmedMean, round_number: int) -> State:
        ends = np.cumsum([part.size for part in self.up_parts()])[:-1]
        changes = np.split(accumulator.mean(), ends)
        return {
            part.name: as_float32(np.asarray(state[part.name], dtype=np.float64) + change)
            for part, change in zip(self.up_parts(), changes, strict=True)
        }

    def write_network(self, state: State, network: str, key: int) -> None:
        self._write(state)

    def _write(self, vectors: dict[str, Any]) -> None:
        flat = self.task.flat
        with torch.no_grad():
            flat.weights.copy_(torch.from_numpy(vectors["weights"]))
            if flat.statistics is not None:
                flat.statistics.copy_(torch.from_numpy(vectors["statistics"]))
