"""sparse-masks: masks below one bit per parameter, both ways.

Our own method; docs/sparse-masks.md has the experiments behind it.

    held   the scores s on a grid, the same on all sides, bit for bit; theta = sigmoid(s)
    down   the new grid values given the old ones, entropy-coded; places that hardly moved are not updated
    client trains s by straight-through steps along the normalised gradient: s_k; change = s_k - s + residual
    up     the places where the change matters most, its signs, and one magnitude for all of them
           residual <- change - what was sent, kept by the client
    server s <- s + rate * mean_k(what was sent), kept in full precision

It differs from FedPM and DeltaMask (paper 000) in three ways.

Steps are proportional to the gradient. Adam moves every score by about the same distance, whatever its gradient. But
mask gradients are heavy-tailed: a small share of the places holds most of the energy, and clients agree on these.

Clients upload the change of the scores instead of a sampled mask. A flip sends +1 or -1 where the change is a few
hundredths, which is unbiased but very noisy. A sign and a common magnitude describe the largest changes almost
completely, and the rest is kept by the client as error feedback (sparse ternary compression: Sattler et al., "Robust
and communication-efficient federated learning from non-i.i.d. data", 2020, for weights).

The broadcast is a change, too. The server knows what clients hold, so rounding errors are corrected later.

`bits_per_round` is the budget of one upload in bits, header included. The most important places that fit are sent
(`subbit.exchange.important`).

The influence of one client is bounded. The server rejects an upload with more places than its share or budget allows,
or with a magnitude that no honest client can have accumulated by that round. Values beyond the range of the scores,
e.g. of a place that was not sent for long, are clipped to it: one of K uploads moves a score by at most 2 score_limit
server_rate / K. The client still chooses direction and places; `aggregator=agreement` leaves out clients that agree
with no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from subbit.aggregate.aggregators import Accumulator, Aggregator, Mean, averages_vectors
from subbit.codecs import Shared, Vector
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.exchange.exchange import Exchange, Part, Payloads, State, as_float32
from subbit.exchange.grid import LEVELS, GridChanges, Levels, ScoreGrid, check_server_rate
from subbit.exchange.honest import check_within
from subbit.exchange.important import ImportantUp
from subbit.local.optimizers import Sgd
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.masks import Mask, MaskMap
from subbit.methods.method import Method
from subbit.models.reparametrisation import SCORE_LIMIT
from subbit.models.task import Task, Turn

ROUNDING = 1.001
"""Tolerance for sums in float32."""


@dataclass(frozen=True)
class ChangeAggregate:
    aggregator: Aggregator = choice("aggregator", Mean(), accepts=averages_vectors)
    """How changes are aggregated: a mean over clients; or robustly, without the clients that agree least with the
    others, or place by place, where a place that was not sent counts as zero."""
    server_rate: float = 2.0
    """Step size of the server along the mean change."""

    def __post_init__(self) -> None:
        check_server_rate(self.server_rate)


@dataclass(frozen=True)
class SparseMasksParameters:
    map: MaskMap = MaskMap()
    local: Local = Local(optimizer=Sgd(momentum=0.0), normalise=True, learning_rate=1.0)
    """With normalised steps the learning rate is the root mean square by which one step moves the scores."""
    up: ImportantUp = ImportantUp()
    down: ScoreGrid = ScoreGrid()
    aggregate: ChangeAggregate = ChangeAggregate()


class ScoreExchange(Exchange):
    """Broadcasts scores on a grid; clients upload their most important changes."""

    changes: GridChanges

    def __init__(self, task: Task, parameters: SparseMasksParameters, bound: Mask) -> None:
        self.task, self.map, self.size = task, bound, bound.size
        self.up, self.grid, self.aggregate = parameters.up, parameters.down, parameters.aggregate
        self.changes = GridChanges(self.grid, self.size, LEVELS, "scores", self._first_scores)

    # Downlink.

    def down_parts(self) -> tuple[Part, ...]:
        return self.changes.snapshot_parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        return Shared(self.size) if part.name == "changes" else self.changes.shared(view)

    def start(self) -> State:
        return {"scores": self._first_scores()}

    def _first_scores(self) -> Vector:
        return self.grid.within(self.map.start())

    def broadcast(self, state: State, round_number: int) -> Payloads:
        raise NotImplementedError("what goes down is a change")

    def open(self, payloads: Payloads, round_number: int) -> Levels:
        levels: Levels = payloads[LEVELS]
        return levels

    # Uplink.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("changes", self.up.codec, self.size),)

    def trained(self, view: Levels) -> Tensor:
        return torch.from_numpy(self.grid.values(view))

    def say(self, view: Levels, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        before = self.grid.values(view)
        change = trained.numpy() - before
        if self.up.residuals and "residual" in turn.memory:
            change = change + turn.memory["residual"]
        key = derive_key(self.task.seed, "random-order", turn.round_number, turn.client)
        sent = self.up.chosen(change, before, key)
        if self.up.residuals:
            turn.memory["residual"] = as_float32(change - sent)
        observations = {"places": float(np.count_nonzero(sent)), "moved": float(np.abs(change).mean())}
        return {"changes": sent}, observations

    # Server side.

    def farthest(self, part: Part, view: Levels) -> float:
        return self._most_gathered(self.task.rounds)

    def _most_gathered(self, turns: int) -> float:
        """The largest change a client can have accumulated. A turn moves a score at most from one end of the grid to
        the opposite end of the training range; with residuals, turns add up."""
        gathered = turns if self.up.residuals else 1
        return gathered * (self.grid.score_limit + SCORE_LIMIT) * ROUNDING

    def accumulator(self) -> Accumulator:
        return self.aggregate.aggregator.accumulator(self.size)

    def accumulate(
        self, accumulator: Accumulator, view: Levels, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        sent = payloads["changes"]
        self.up.check(sent)
        found = check_within(sent, self._most_gathered(round_number + 1), "an upload of changes")
        # A residual may exceed the whole range of the scores, but a larger change has no further effect. Clipping, with
        # equal weights for all clients, bounds how far a malicious client can move a score.
        most = 2 * self.grid.score_limit
        accumulator.add(np.clip(sent, -most, most) if found > most else sent, 1)

    def step(self, state: State, accumulator: Accumulator, round_number: int) -> State:
        scores = np.asarray(state["scores"]) + self.aggregate.server_rate * accumulator.mean()
        return {"scores": as_float32(self.grid.within(scores))}

    def write(self, state: State, network: str, key: int) -> None:
        self.map.write(np.asarray(state["scores"]), network, key)


class SparseMasks(Method[SparseMasksParameters]):
    name = "sparse-masks"
    title = "Masks below one bit per parameter, both ways"
    paper = "ours"
    citation = "this library, docs/sparse-masks.md"
    sends_up = "signs of the most important changes of the scores, one magnitude, entropy-coded places"
    sends_down = "scores on a grid, entropy-coded given the last broadcast"
    Parameters = SparseMasksParameters
    presets: ClassVar = {"default": {}, "paper": {}}
    exchange: ScoreExchange

    def __init__(self, parameters: SparseMasksParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = ScoreExchange(task, parameters, self.map)
