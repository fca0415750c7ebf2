"""What all stochastic-mask methods share: scores on frozen weights, probabilities down, a Beta posterior on the server.

The trained vector is scores s; the network is w0 * m with m ~ Bern(sigmoid(s)). The server keeps how many of the
last `total` masks had a one at each place, and both sides turn that into 32-bit integer thresholds, so that a mask
drawn on the server and one drawn on a client from the same key are equal bit for bit (`subbit.codecs.sampler`). How
a client's mask goes up is the method's own affair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import MEDIAN, MaskCounts, trimmed_counts
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.bits import unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits, thresholds_of_counts, uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import Method, ParametersType, Part, Payloads, State, Task, Turn
from subbit.methods.local import LocalTraining, train_locally
from subbit.models.reparametrisation import BernoulliMask, Reparametrisation, clamp_scores_
from subbit.randomness import derive_key

FULL = float(1 << 32)  # A threshold is a probability times 2^32.
MOST_MASKS = 65535


@dataclass(frozen=True)
class MaskParameters(LocalTraining):
    learning_rate: float = 0.1
    theta_init: float | Literal["auto", "normal"] = "auto"
    """Chance of a one at the start; `normal`: scores from N(0, 1); `auto`: 0.95 on pre-trained weights, else normal."""
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
    straight_through: Literal["identity", "theta"] = "identity"
    """Gradient of the draw: dL/dm * theta (1 - theta), or that times theta as in the code of FedPM's authors."""
    evaluation: Literal["expected", "sampled", "thresholded"] = "expected"
    """Which network's accuracy is the accuracy of the run: w0 * theta, w0 * m, or w0 * [theta >= 1/2]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.theta_init, float):
            require(0 < self.theta_init < 1, f"theta_init={self.theta_init}: needs a probability between 0 and 1")
        require(0 < self.clamp < 0.5, f"clamp={self.clamp}: needs a number above 0 and below 0.5")
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")
        require(self.reset_every is None or self.reset_every >= 1, f"reset_every={self.reset_every}: needs at least 1")


class MaskMethod(Method[ParametersType]):
    """Base of `fedpm` and its kin, and of `deltamask`. `Parameters` extends `MaskParameters`."""

    networks = ("expected", "sampled", "thresholded")
    trains_added_values = False
    parameters: Any

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        self.reparametrisation: Reparametrisation = BernoulliMask(task.flat.initial, self.parameters.straight_through)
        self.period = self.parameters.reset_every or max(1, round(task.clients / task.participants))
        if self.period * task.participants > MOST_MASKS:
            raise ConfigError(
                f"{task.participants} masks in each of {self.period} rounds are more than the {MOST_MASKS} that can be "
                "counted before a reset: set reset_every lower"
            )

    @staticmethod
    def default_selection(blocks: int, pretrained: bool) -> str:
        return f"last {min(5, blocks)} blocks: weights" if blocks and pretrained else "all: weights"

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

    def initial_thresholds(self) -> Thresholds:
        """Known to everybody from the configuration: the first broadcast is an empty count."""
        start = self.parameters.theta_init
        if start == "auto":
            start = 0.95 if self.task.pretrained else "normal"
        if isinstance(start, float):
            return np.full(self.size, int(start * FULL), dtype=np.uint32)
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        thresholds: Thresholds = normal_scores_table()[drawn >> np.uint32(22)]
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
        after = before.clone()
        loss = train_locally(
            self.task, self.parameters, self.reparametrisation, after, data, turn, constrain=clamp_scores_
        )
        return moved_thresholds(thresholds, before, after), loss, after, before

    # Evaluation.

    @property
    def primary_network(self) -> str:
        network: str = self.parameters.evaluation
        return network

    def write_network(self, state: State, network: str, key: int) -> None:
        thresholds = self.thresholds(counts_of(state))
        flat = self.task.flat
        if network == "expected":
            factor = (thresholds / FULL).astype(np.float32)
        elif network == "thresholded":
            factor = (thresholds >= 1 << 31).astype(np.float32)
        else:
            factor = unpack_bits(sample_bits(thresholds, key), self.size).astype(np.float32)
        torch.mul(flat.initial, torch.from_numpy(factor), out=flat.weights)


def counts_of(state: State) -> Counts:
    values = state["counts"]
    if not isinstance(values, np.ndarray):
        raise TypeError("a mask state holds an array of counts")
    return Counts(int(state["total"]), values.astype(np.uint16, copy=False))


def scores_of_thresholds(thresholds: Thresholds) -> Tensor:
    """logit(theta), in float32 on this machine only: nothing that both sides must agree on depends on it."""
    theta = torch.from_numpy((thresholds + 0.5) / FULL)
    return torch.logit(theta).to(torch.float32)


def moved_thresholds(thresholds: Thresholds, before: Tensor, after: Tensor) -> Thresholds:
    """Thresholds after training, as the old ones plus the change of the sigmoid.

    Rebuilding them from the scores alone would move thresholds by rounding even where nothing was learned; this way
    a score that did not change keeps its threshold exactly, and training with learning rate 0 flips no bit.
    """
    change = torch.sigmoid(after.double()) - torch.sigmoid(before.double())
    moved = thresholds.astype(np.float64) + np.rint(change.numpy() * FULL)
    return as_thresholds(moved)


def as_thresholds(scaled: NDArray[np.float64]) -> Thresholds:
    return np.clip(scaled, 0, FULL - 1).astype(np.uint32)


@lru_cache(maxsize=1)
def normal_scores_table() -> Thresholds:
    """sigmoid(s) at 1024 quantiles of s ~ N(0, 1), rounded to 16 bits so that no libm's last digit shows."""
    middle = [NormalDist().inv_cdf((index + 0.5) / 1024) for index in range(1024)]
    return np.array([round(65536 / (1 + math.exp(-score))) << 16 for score in middle], dtype=np.uint32)
