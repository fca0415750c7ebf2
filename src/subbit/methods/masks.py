"""What all stochastic-mask methods share: scores on frozen weights, probabilities down, a Beta posterior on the server.

The trained vector is scores s; the network is w0 * m with m ~ Bern(sigmoid(s)). The server keeps how many of the
last `total` masks had a one at each place, and both sides turn that into 32-bit integer thresholds, so that a mask
drawn on the server and one drawn on a client from the same key are equal bit for bit (`subbit.codecs.sampler`). How
a client's mask goes up is the method's own affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from subbit.aggregate import MEDIAN, MaskCounts, trimmed_counts
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.sampler import Thresholds, thresholds_of_counts
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import ParametersType, Part, Payloads, State, Task, Turn
from subbit.methods.scores import FULL, ScoreMethod, ScoreParameters, as_thresholds, scores_of_thresholds
from subbit.randomness import derive_key

MOST_MASKS = 65535


@dataclass(frozen=True)
class MaskParameters(ScoreParameters):
    theta: Literal["counts", "float32"] = "counts"
    """How the probabilities go down: entropy-coded counts, or float32 as in the papers."""
    estimator: Literal["mode", "mean"] = "mode"
    """Of the Beta posterior: M / K (clamped) or (1 + M) / (2 + K)."""
    clamp: float = 0.01
    """The mode stays this far from 0 and 1, or a place could never change again."""
    trim: float = 0.0
    """Share of the bits of each place that is dropped at each end: as many liars cannot drag a probability away."""
    reset_every: int | None = None
    """Rounds after which the posterior starts anew; none: 1 / participation, as the papers have it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.clamp < 0.5, f"clamp={self.clamp}: needs a number above 0 and below 0.5")
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")
        require(self.reset_every is None or self.reset_every >= 1, f"reset_every={self.reset_every}: needs at least 1")


class MaskMethod(ScoreMethod[ParametersType]):
    """Base of `fedpm` and its kin, and of `deltamask`. `Parameters` extends `MaskParameters`."""

    state_is_counts = True

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        self.period = self.parameters.reset_every or max(1, round(task.clients / task.participants))
        if self.period * task.participants > MOST_MASKS:
            raise ConfigError(
                f"{task.participants} masks in each of {self.period} rounds are more than the {MOST_MASKS} that can be "
                "counted before a reset: set reset_every lower"
            )

    # What travels down: the probabilities.

    def down_parts(self) -> tuple[Part, ...]:
        codec = make_codec("counts") if self.parameters.theta == "counts" else make_codec("dense")
        return (Part("theta", codec, self.size),)

    def start(self) -> State:
        return {"counts": np.zeros(self.size, dtype=np.uint16), "total": 0}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        if self.parameters.theta == "counts":
            return {"theta": counts_of(state)}
        return {"theta": (self.thresholds(counts_of(state)) / FULL).astype(np.float32)}

    def open(self, payloads: Payloads, round_number: int) -> Thresholds:
        """The thresholds that the broadcast stands for: integers on both sides, from exactly what was sent."""
        theta = payloads["theta"]
        if isinstance(theta, Counts):
            return self.thresholds(theta)
        # A float32 times 2^32 is exact in float64, so both sides round the same number.
        return as_thresholds(theta.astype(np.float64) * FULL)

    def thresholds(self, theta: Counts) -> Thresholds:
        if theta.total == 0:
            return self.initial_thresholds()
        theta = trimmed_counts(theta, self.parameters.trim)
        table: Thresholds = thresholds_of_counts(
            theta.total,
            self.parameters.estimator,
            clamp_numerator=round(self.parameters.clamp * 1_000_000),
            clamp_denominator=1_000_000,
        )
        thresholds: Thresholds = table[theta.values]
        return thresholds

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        if part.name == "theta":
            return Shared(self.size, limit=self.period * self.task.participants)
        return Shared(self.size, key=derive_key(self.task.seed, "codec", round_number, client), thresholds=view)

    # The server's posterior.

    def accumulator(self) -> MaskCounts:
        return MaskCounts(self.size)

    def step(self, state: State, accumulator: MaskCounts, round_number: int) -> State:
        if round_number % self.period == 0:
            return {"counts": accumulator.counts, "total": accumulator.total}
        before = counts_of(state)
        return {"counts": before.values + accumulator.counts, "total": before.total + accumulator.total}

    # The client's training.

    def train_scores(
        self, thresholds: Thresholds, data: Examples, turn: Turn
    ) -> tuple[Thresholds, float, Tensor, Tensor]:
        """Train from the broadcast: thresholds after training, the loss, scores after and before."""
        before = scores_of_thresholds(thresholds)
        after, loss = self.train_from(before, data, turn)
        return moved_thresholds(thresholds, before, after), loss, after, before

    # Evaluation.

    def write_network(self, state: State, network: str, key: int) -> None:
        self.write_thresholds(self.thresholds(counts_of(state)), network, key)


def counts_of(state: State) -> Counts:
    values = state["counts"]
    if not isinstance(values, np.ndarray):
        raise TypeError("a mask state holds an array of counts")
    return Counts(int(state["total"]), values.astype(np.uint16, copy=False))


def moved_thresholds(thresholds: Thresholds, before: Tensor, after: Tensor) -> Thresholds:
    """Thresholds after training, as the old ones plus the change of the sigmoid.

    Rebuilding them from the scores alone would move thresholds by rounding even where nothing was learned; this way
    a score that did not change keeps its threshold exactly, and training with learning rate 0 flips no bit.
    """
    change = torch.sigmoid(after.double()) - torch.sigmoid(before.double())
    moved = thresholds.astype(np.float64) + np.rint(change.numpy() * FULL)
    return as_thresholds(moved)
