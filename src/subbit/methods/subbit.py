"""subbit: masks below one bit per parameter, both ways.

Ours. What was tried on the way, with its numbers: docs/flagship.md.

    held   the scores s on a grid, the same on all sides, bit for bit; theta = sigmoid(s)
    down   the new grid values given the old ones, entropy-coded; places that hardly moved stay
    client trains s by straight-through steps along the normalised gradient: s_k; change = s_k - s + residual
    up     the places where the change matters most, its signs, and one magnitude for all of them
           residual <- change - what was sent, kept by the client
    server s <- s + rate * mean_k(what was sent), kept in full precision

Three things differ from FedPM and DeltaMask (paper 000).

Steps follow the size of the gradient. Adam moves every score by about the same distance, whatever its gradient; but the
gradient of masks is heavy-tailed, a small share of the places holds most of its energy, and clients agree about these.

What goes up is the change of the scores and not a draw of the mask. A flip says +1 or -1 where the change is a few
hundredths, which is unbiased and very noisy; a sign with a common magnitude is nearly all there is to say about the
largest changes, and what is left out is not lost, but waits with the client (sparse ternary compression: Sattler et
al., "Robust and communication-efficient federated learning from non-i.i.d. data", 2020, there for weights).

What goes down is the change, too. The server knows what clients hold, so that rounding loses nothing for good.

`bits_per_round` is a budget: bits of one upload, header included. The method keeps the most important places that fit
(`subbit.exchange.important`).

What one client can do is bounded. An upload of more places than its share or its budget allows is refused, and so is a
magnitude that no honest client can have gathered by that round. What is larger than the range of the scores, as that of
a place that waited for long, counts as the range: one of K answers moves a score by at most 2 score_limit server_rate /
K. Which way, and where, is the client's word; `aggregator=agreement` leaves out those with whom nobody agrees.
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
"""Slack of sums in float32."""


@dataclass(frozen=True)
class ChangeAggregate:
    aggregator: Aggregator = choice("aggregator", Mean(), accepts=averages_vectors)
    """How changes become one: all clients alike; or robustly, without those that agree least with the others, or place
    by place, where nothing said counts as zero."""
    server_rate: float = 2.0
    """How far the server goes along the mean change."""

    def __post_init__(self) -> None:
        check_server_rate(self.server_rate)


@dataclass(frozen=True)
class SubbitParameters:
    map: MaskMap = MaskMap()
    local: Local = Local(optimizer=Sgd(momentum=0.0), normalise=True, learning_rate=1.0)
    """The learning rate of normalised steps is the root mean square of what one step moves the scores by."""
    up: ImportantUp = ImportantUp()
    down: ScoreGrid = ScoreGrid()
    aggregate: ChangeAggregate = ChangeAggregate()


class ScoreExchange(Exchange):
    """Scores on a grid go down, their most important changes go up."""

    changes: GridChanges

    def __init__(self, task: Task, parameters: SubbitParameters, bound: Mask) -> None:
        self.task, self.map, self.size = task, bound, bound.size
        self.up, self.grid, self.aggregate = parameters.up, parameters.down, parameters.aggregate
        self.changes = GridChanges(self.grid, self.size, LEVELS, "scores", self._first_scores)

    # Down.

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

    # Up.

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

    # The server half.

    def farthest(self, part: Part, view: Levels) -> float:
        return self._most_gathered(self.task.rounds)

    def _most_gathered(self, turns: int) -> float:
        """A turn moves a score by no more than from one end of what is held to the other end of what is trained, and
        what was not sent waits: turns add up."""
        gathered = turns if self.up.residuals else 1
        return gathered * (self.grid.score_limit + SCORE_LIMIT) * ROUNDING

    def accumulator(self) -> Accumulator:
        return self.aggregate.aggregator.accumulator(self.size)

    def accumulate(
        self, accumulator: Accumulator, view: Levels, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        sent = payloads["changes"]
        self.up.check(sent)
        check_within(sent, self._most_gathered(round_number + 1), "an upload of changes")
        # What waited with a client may be longer than the whole range of the scores, but more would be no use. And
        # every client counts the same: so far, no farther, can a liar move a score.
        most = 2 * self.grid.score_limit
        accumulator.add(np.clip(sent, -most, most), 1)

    def step(self, state: State, accumulator: Accumulator, round_number: int) -> State:
        scores = np.asarray(state["scores"]) + self.aggregate.server_rate * accumulator.mean()
        return {"scores": as_float32(self.grid.within(scores))}

    def write(self, state: State, network: str, key: int) -> None:
        self.map.write(np.asarray(state["scores"]), network, key)


class Subbit(Method[SubbitParameters]):
    name = "subbit"
    title = "subbit: masks below one bit per parameter, both ways"
    paper = "ours"
    citation = "this library, docs/flagship.md"
    sends_up = "signs of the most important changes of the scores, one magnitude, entropy-coded places"
    sends_down = "scores on a grid, entropy-coded given the last broadcast"
    Parameters = SubbitParameters
    presets: ClassVar = {"default": {}, "paper": {}}
    exchange: ScoreExchange

    def __init__(self, parameters: SubbitParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = ScoreExchange(task, parameters, self.map)
