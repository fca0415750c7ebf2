"""Flips with a control variate: the first form of our flagship, kept because it is the fair judge of the second.

DeltaMask with three changes that cost nothing on the wire (docs/flagship.md says what they bring):

    held   theta on a grid, the same on all sides, bit for bit
    down   the new grid values given the old ones, entropy-coded
    client m_g = [u < theta], m_k = [u < theta_k], with uniforms of its own that the server can draw too
    up     the flips, each coded with the chance that it had
    server theta <- theta + rate * mean_k(m_k - m_g)

The server averages m_k - m_g, and not m_k. Both have the right mean, but m_g is drawn with the same uniforms and its
mean, theta, is known exactly: it is a control variate. The variance of a place falls from theta (1 - theta) / K to at
most |theta_k - theta| / K, which is zero where nothing was learned: with learning rate 0, theta stays as it is, where
FedPM's theta drifts to 0 or 1 by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from subbit.aggregate import MEDIAN, SignedCounts, share_dropped
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.bits import count_ones
from subbit.codecs.sampler import Thresholds, sample_bits, thresholds_of_counts
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import Held, Part, Payloads, State, Turn, Update
from subbit.methods.incremental import IncrementalMethod
from subbit.methods.masks import moved_thresholds
from subbit.methods.scores import FULL, ScoreMethod, ScoreParameters, as_thresholds, scores_of_thresholds
from subbit.randomness import derive_key

MILLION = 1_000_000


@dataclass(frozen=True)
class ControlledFlipsParameters(ScoreParameters):
    server_rate: float = 1.0
    """How far the server goes along the mean change of theta."""
    grid: int = 100
    """Steps of theta between 0 and 1 on the way down."""
    deadzone: float = 0.02
    """A place stays as clients hold it until the server's theta is so far away."""
    clamp: float = 0.01
    """theta stays this far from 0 and 1, or a place could never change again."""
    aggregator: Literal["mean", "trimmed", "median"] = "mean"
    """How flips become one change: all clients alike, or robustly, place by place, no flip counting as zero."""
    trim: float = 0.1
    """For `trimmed`: the share of clients, rounded up, that is dropped at each end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.server_rate < 100, f"server_rate={self.server_rate}: needs a number above 0, below 100")
        require(2 <= self.grid <= 1000, f"grid={self.grid}: needs 2 to 1000 steps")
        require(0 <= self.deadzone < 1, f"deadzone={self.deadzone}: needs 0 up to, not including, 1")
        require(0 < self.clamp < 0.5, f"clamp={self.clamp}: needs a number above 0 and below 0.5")
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")


class ControlledFlips(ScoreMethod[ControlledFlipsParameters], IncrementalMethod[ControlledFlipsParameters]):
    name = "controlled-flips"
    title = "Flips of stochastic masks, averaged against a control variate"
    paper = "ours"
    citation = "this library, docs/flagship.md"
    sends_up = "flips of the mask, each coded with the chance that it had"
    sends_down = "mask probabilities on a grid, entropy-coded given the last broadcast"
    Parameters = ControlledFlipsParameters
    presets: ClassVar = {"default": {}, "paper": {}}

    # What goes down.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part("theta", make_codec("counts"), self.size),)

    def snapshot_parts(self) -> tuple[Part, ...]:
        return self.down_parts()

    def first(self) -> Held:
        return {"levels": np.rint(self._start() * self.parameters.grid).astype(np.uint16)}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        grid, theta, old = self.parameters.grid, np.asarray(state["theta"]), held["levels"]
        far = np.abs(theta - old / grid) >= self.parameters.deadzone
        return {"theta": Counts(grid, np.where(far, np.rint(theta * grid), old).astype(np.uint16))}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        return self.restore(payloads)

    def snapshot(self, held: Held) -> Payloads:
        return {"theta": Counts(self.parameters.grid, held["levels"])}

    def restore(self, payloads: Payloads) -> Held:
        return {"levels": payloads["theta"].values}

    def open(self, payloads: Payloads, round_number: int) -> Thresholds:
        clamp = round(self.parameters.clamp * MILLION)
        table = thresholds_of_counts(self.parameters.grid, "mode", clamp_numerator=clamp, clamp_denominator=MILLION)
        thresholds: Thresholds = table[payloads["levels"]]
        return thresholds

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        if part.name == "theta":
            grid = self.parameters.grid
            return Shared(self.size, limit=grid, reference=None if view is None else Counts(grid, view["levels"]))
        return Shared(self.size, thresholds=view, uniforms_key=self._key(round_number, client))

    def _key(self, round_number: int, client: int) -> int:
        return derive_key(self.task.seed, "reference-mask", round_number, client)

    # What goes up.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("flips", make_codec("flips"), self.size),)

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        before = scores_of_thresholds(view)
        after, loss = self.train_from(before, data, turn)
        key = self._key(turn.round_number, turn.client)
        flips = sample_bits(moved_thresholds(view, before, after), key) ^ sample_bits(view, key)
        return Update({"flips": flips}, len(data), {"loss": loss, "flips": count_ones(flips)})

    # The server half.

    def _start(self) -> NDArray[np.float64]:
        theta: NDArray[np.float64] = self.initial_thresholds() / FULL
        return theta.clip(self.parameters.clamp, 1 - self.parameters.clamp)

    def start(self) -> State:
        return {"theta": self._start()}

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
        clamp, trim = self.parameters.clamp, share_dropped(self.parameters.aggregator, self.parameters.trim)
        theta = np.asarray(state["theta"]) + self.parameters.server_rate * accumulator.mean(trim)
        return {"theta": theta.clip(clamp, 1 - clamp)}

    def write_network(self, state: State, network: str, key: int) -> None:
        self.write_thresholds(as_thresholds(np.asarray(state["theta"]) * FULL), network, key)
