"""FedCode: weights as indices into a small codebook; in most rounds only the codebook is sent.

Khalilian, Tsouvalas, Ozcelebi, Meratnia: "FedCode: Communication-Efficient Federated Learning via Transferring
Codebooks", IEEE EDGE 2024. With rounds counted from 1:

    down   rounds 1, 2 and every `down_every`-th: w, clustered (`clusters` values and the index of each weight);
           otherwise the codebook of w alone
    client whole broadcast: w_k <- w.  Codebook: its own last weights, each snapped to the nearest value in it.
           Then local training
    up     round 1 and every `up_every`-th: w_k, clustered; otherwise the codebook of w_k alone
    server whole uploads: w <- sum_k n_k w_k / sum_k n_k.  Codebooks: w, each value snapped to the nearest of all values
           in all codebooks of the round

The published code needs every client in every round. Here receivers also hold the common weights defined by the
broadcasts: the last whole ones, snapped to each codebook since. A client starts a codebook round from these if it has
no weights of its own or has not trained since the last whole broadcast. Broadcasts that it missed are sent again and
counted (`subbit.runtime.downlink`). Running statistics (`batchnorm=average`) are not clustered; they are sent in
float32 in every round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from subbit.aggregate import WeightedMean
from subbit.codecs import Vector, make_codec
from subbit.codecs.codebook import fit_codebook
from subbit.core.errors import FrameError, PayloadError
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.exchange.exchange import Held, Part, Payloads, State, Update, as_float32, farthest_by_view
from subbit.exchange.honest import check_within
from subbit.exchange.vectors import VectorExchange
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.weights import WeightMap
from subbit.methods.fedavg import FedAvgParameters
from subbit.methods.method import Method
from subbit.models.task import Task, Turn


@dataclass(frozen=True)
class FedCodeParameters:
    local: Local = Local()
    clusters: int = 64
    """Values in a codebook, 1 to 256."""
    down_every: int = 5
    """Rounds between whole broadcasts."""
    up_every: int = 2
    """Rounds between whole uploads."""

    def __post_init__(self) -> None:
        make_codec("fedcode", clusters=self.clusters)  # Raises if out of range.
        require(self.down_every >= 1, f"down_every={self.down_every}: needs at least 1")
        require(self.up_every >= 1, f"up_every={self.up_every}: needs at least 1")

    # Schedule.

    def whole_broadcast(self, round_number: int) -> bool:
        return round_number < 2 or (round_number + 1) % self.down_every == 0

    def whole_uploads(self, round_number: int) -> bool:
        return round_number < 1 or (round_number + 1) % self.up_every == 0

    # Payloads: every round sends one of these two parts.

    def parts(self, size: int) -> tuple[Part, ...]:
        weights = Part("weights", make_codec("fedcode", clusters=self.clusters), size, optional=True)
        return (weights, Part("codebook", make_codec("dense"), self.clusters, optional=True))

    def payloads(self, weights: Vector, whole: bool) -> Payloads:
        if whole:
            return {"weights": weights, "codebook": None}
        return {"weights": None, "codebook": padded(fit_codebook(weights, self.clusters), self.clusters)}


class CodebookChanges:
    """Receivers hold the common weights and the last codebook."""

    def __init__(self, parameters: FedCodeParameters, parts: tuple[Part, ...]) -> None:
        self.parameters, self.parts = parameters, parts

    def first(self) -> Held:
        """Zeros: the first broadcast is whole."""
        return {part.name: np.zeros(part.size, dtype=np.float32) for part in self.parts}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        whole = self.parameters.whole_broadcast(round_number)
        payloads = self.parameters.payloads(np.asarray(state["weights"]), whole)
        return {**payloads, **{part.name: state[part.name] for part in self.parts if not part.optional}}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        needed = "weights" if self.parameters.whole_broadcast(round_number) else "codebook"
        if payloads[needed] is None:
            raise FrameError("length", f"the broadcast of round {round_number} has no {needed}")
        # Adding zero turns -0 into 0: a snapshot is clustered too and cannot represent -0.
        received = payloads[needed] + np.float32(0)
        followed = {part.name: payloads[part.name] for part in self.parts if not part.optional}
        if needed == "weights":
            return {**followed, "weights": received, "codebook": padded(np.unique(received), self.parameters.clusters)}
        return {**followed, "weights": snap(held["weights"], received), "codebook": received}

    def snapshot_parts(self) -> tuple[Part, ...]:
        """Held weights have at most as many distinct values as a codebook, so clustering them is exact."""
        return tuple(replace(part, optional=False) for part in self.parts)

    def snapshot(self, held: Held) -> Payloads:
        return dict(held)

    def restore(self, payloads: Payloads) -> Held:
        return dict(payloads)


class Uploads:
    order_free = False

    def __init__(self, weights: int, statistics: int) -> None:
        self.weights, self.statistics = WeightedMean(weights), WeightedMean(statistics)
        self.codebooks: list[Vector] = []


class FedCode(Method[FedCodeParameters]):
    name = "fedcode"
    title = "FedCode: codebooks of weights, seldom the weights"
    paper = "baseline"
    citation = "Khalilian et al., FedCode: Communication-Efficient FL via Transferring Codebooks, IEEE EDGE 2024"
    sends_up = "codebook of the weights; every second round the clustered weights"
    sends_down = "codebook of the weights; every fifth round the clustered weights"
    Parameters = FedCodeParameters
    presets: ClassVar = {"default": {}, "paper": {"learning_rate": 1e-3, "epochs": 4, "batch_size": 128}}
    needs_start = False
    exchange: VectorExchange

    def __init__(self, parameters: FedCodeParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = WeightMap().bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        # FedAvg's exchange: the weights are coded differently here, but running statistics are sent in the same way.
        self.exchange = VectorExchange(task, FedAvgParameters(), self.map)
        self.exchange.changes = CodebookChanges(parameters, self.down_parts())

    def down_parts(self) -> tuple[Part, ...]:
        return (*self.parameters.parts(self.size), *self.exchange.statistics_part())

    def up_parts(self) -> tuple[Part, ...]:
        return self.down_parts()

    # Client side.

    def train(self, view: Held, data: Data, turn: Turn) -> Update:
        trained = self.exchange.trained({**view, "weights": self._start(view, turn)})
        observed = self.trainer.train(trained, data, turn)
        turn.memory["weights"], turn.memory["round"] = trained.numpy(), np.array([turn.round_number])
        payloads, _ = self.exchange.say(view, trained, turn)
        payloads |= self.parameters.payloads(trained.numpy(), self.parameters.whole_uploads(turn.round_number))
        return Update(payloads, len(data), observed)

    def _start(self, view: Held, turn: Turn) -> Vector:
        last_whole = turn.round_number
        while not self.parameters.whole_broadcast(last_whole):
            last_whole -= 1
        if last_whole < turn.round_number and "round" in turn.memory and int(turn.memory["round"][0]) >= last_whole:
            return snap(turn.memory["weights"], view["codebook"])
        return view["weights"]

    # Server side.

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        self.exchange.examine(view, payloads, examples, client)
        if payloads["codebook"] is not None:
            check_within(payloads["codebook"], farthest_by_view(self.up_parts()[1], view), "codebook")

    def accumulator(self) -> Uploads:
        return Uploads(self.size, sum(part.size for part in self.exchange.statistics_part()))

    def accumulate(
        self, accumulator: Uploads, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        whole = self.parameters.whole_uploads(round_number)
        asked, other = ("weights", "codebook") if whole else ("codebook", "weights")
        if payloads[asked] is None or payloads[other] is not None:
            raise PayloadError(f"round {round_number} asks for {asked}, and for no {other}", "value")
        if whole:
            accumulator.weights.add(payloads["weights"], examples)
        else:
            accumulator.codebooks.append(payloads["codebook"])
        if "statistics" in payloads:
            accumulator.statistics.add(payloads["statistics"], examples)

    def step(self, state: State, accumulator: Uploads, round_number: int) -> State:
        after = dict(state)
        if accumulator.weights.weight:
            after["weights"] = as_float32(accumulator.weights.mean())
        elif accumulator.codebooks:
            after["weights"] = snap(np.asarray(state["weights"]), np.concatenate(accumulator.codebooks))
        if "statistics" in state:
            after["statistics"] = as_float32(np.asarray(state["statistics"]) + accumulator.statistics.mean())
        return after


def padded(codebook: Vector, clusters: int) -> Vector:
    """Pad a codebook to the fixed size of its part by repeating the last value."""
    return np.concatenate([codebook, np.full(clusters - codebook.size, codebook[-1], np.float32)])


def snap(weights: Vector, values: Vector) -> Vector:
    """Round each weight to the nearest of the values; ties go to the larger one."""
    rising = np.unique(values)
    middles = (rising[1:].astype(np.float64) + rising[:-1]) / 2
    snapped: Vector = rising[np.searchsorted(middles, weights, side="right")]
    return snapped
