"""Flips with a control variate: the first version of `sparse-masks`, kept as its baseline.

DeltaMask with three changes that cost nothing on the wire (docs/sparse-masks.md):

    held   theta on a grid, the same on all sides, bit for bit
    down   the new grid values given the old ones, entropy-coded
    client m_g = [u < theta], m_k = [u < theta_k], with per-client uniforms that the server can draw too
    up     the flips, each coded with its probability
    server theta <- theta + rate * mean_k(m_k - m_g)

The server averages m_k - m_g instead of m_k. Both are unbiased, but m_g is drawn with the same uniforms and its mean,
theta, is known exactly: it is a control variate. The variance of a place falls from theta (1 - theta) / K to at most
|theta_k - theta| / K, which is zero where nothing was learned. With learning rate 0 theta does not change, whereas
FedPM's theta drifts to 0 or 1 by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import MEDIAN, SignedCounts
from subbit.aggregate.aggregators import Mean, Median, Trimmed
from subbit.codecs import Shared, make_codec
from subbit.codecs.packed import count_ones
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.exchange.exchange import Exchange, Part, Payloads, State
from subbit.exchange.grid import LEVELS, GridChanges, ThetaGrid, check_server_rate
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import FULL, as_thresholds
from subbit.maps.masks import Mask, MaskMap
from subbit.methods.method import Method
from subbit.models.task import Task, Turn


def counts_flips(aggregator: Any) -> bool:
    """Whether the aggregator only needs, for each place, the number of clients that switched it on and off."""
    return aggregator in (Mean, Trimmed, Median)


@dataclass(frozen=True)
class FlipsAggregate:
    aggregator: Mean | Trimmed | Median = choice("aggregator", Mean(), accepts=counts_flips)
    """How flips are aggregated: a mean over clients, or a robust aggregate of each place; no flip counts as zero."""
    server_rate: float = 1.0
    """Step size of the server along the mean change of theta."""

    def __post_init__(self) -> None:
        check_server_rate(self.server_rate)

    def mean(self, counts: SignedCounts) -> NDArray[np.float64]:
        if isinstance(self.aggregator, Trimmed):
            return counts.mean(self.aggregator.trim)
        return counts.mean(MEDIAN if isinstance(self.aggregator, Median) else 0.0)


@dataclass(frozen=True)
class ControlledFlipsParameters:
    map: MaskMap = MaskMap()
    local: Local = Local(learning_rate=0.1)
    down: ThetaGrid = ThetaGrid()
    aggregate: FlipsAggregate = FlipsAggregate()


class ControlledExchange(Exchange):
    """Broadcasts probabilities on a grid; clients upload flips against a mask that both sides can draw."""

    changes: GridChanges

    def __init__(self, task: Task, parameters: ControlledFlipsParameters, bound: Mask) -> None:
        self.task, self.map, self.size = task, bound, bound.size
        self.grid, self.aggregate = parameters.down, parameters.aggregate
        self.changes = GridChanges(self.grid, self.size, "theta", "theta", self._first_theta)

    # Downlink.

    def down_parts(self) -> tuple[Part, ...]:
        return self.changes.snapshot_parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        if part.name == "theta":
            return self.changes.shared(view)
        return Shared(self.size, thresholds=view, uniforms_key=self._key(round_number, client))

    def _key(self, round_number: int, client: int) -> int:
        return derive_key(self.task.seed, "reference-mask", round_number, client)

    def start(self) -> State:
        return {"theta": self._first_theta()}

    def _first_theta(self) -> NDArray[np.float64]:
        return self.grid.within(self.map.initial_thresholds() / FULL)

    def broadcast(self, state: State, round_number: int) -> Payloads:
        raise NotImplementedError("what goes down is a change")

    def open(self, payloads: Payloads, round_number: int) -> Thresholds:
        return self.grid.thresholds(payloads[LEVELS])

    # Uplink.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("flips", make_codec("flips"), self.size),)

    def trained(self, view: Thresholds) -> Tensor:
        return self.map.scores(view)

    def say(self, view: Thresholds, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        key = self._key(turn.round_number, turn.client)
        flips = sample_bits(self.map.moved(view, trained), key) ^ sample_bits(view, key)
        return {"flips": flips}, {"flips": count_ones(flips)}

    # Server side.

    def accumulator(self) -> SignedCounts:
        return SignedCounts(self.size)

    def accumulate(
        self,
        accumulator: SignedCounts,
        view: Thresholds,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        accumulator.add(payloads["flips"], sample_bits(view, self._key(round_number, client)))

    def step(self, state: State, accumulator: SignedCounts, round_number: int) -> State:
        theta = np.asarray(state["theta"]) + self.aggregate.server_rate * self.aggregate.mean(accumulator)
        return {"theta": self.grid.within(theta)}

    def write(self, state: State, network: str, key: int) -> None:
        self.map.write_thresholds(as_thresholds(np.asarray(state["theta"]) * FULL), network, key)


class ControlledFlips(Method[ControlledFlipsParameters]):
    name = "controlled-flips"
    title = "Flips of masks, averaged against a control variate"
    paper = "ours"
    citation = "this library, docs/sparse-masks.md"
    sends_up = "flips of the mask, each coded with the chance that it had"
    sends_down = "mask probabilities on a grid, entropy-coded given the last broadcast"
    Parameters = ControlledFlipsParameters
    presets: ClassVar = {"default": {}, "paper": {}}

    def __init__(self, parameters: ControlledFlipsParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = ControlledExchange(task, parameters, self.map)
