"""What all methods share that train scores of stochastic masks on frozen weights, whatever they send.

The trained vector is scores s; the network is w0 * m with m ~ Bern(theta), theta = sigmoid(s). Probabilities that two
sides must agree on are 32-bit integer thresholds, theta * 2^32 (`subbit.codecs.sampler`).
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

from subbit.codecs.bits import unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits, uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import Method, ParametersType, Task, Turn
from subbit.methods.local import LocalTraining, train_locally
from subbit.models.popup import signed_weights
from subbit.models.reparametrisation import BernoulliMask, Reparametrisation, clamp_scores_
from subbit.randomness import derive_key

FULL = float(1 << 32)  # A threshold is a probability times 2^32.


@dataclass(frozen=True)
class ScoreParameters(LocalTraining):
    learning_rate: float = 0.1
    normalise: bool = False
    """Divide the gradient of the scores by its root mean square in every step: for `optimizer=sgd`, whose learning rate
    then means the same on every network."""
    weights: Literal["auto", "keep", "signed", "signed-e"] = "auto"
    """The frozen weights: the module's own (`keep`), or their signs times one constant in each tensor, sqrt(2 / fan-in)
    or, as in the code of FedPM's authors, e / sqrt(fan-in). `auto`: `keep` on pre-trained weights, else `signed`."""
    theta_init: float | Literal["auto", "normal"] = "auto"
    """Chance of a one at the start; `normal`: scores from N(0, 1); `auto`: 0.95 on pre-trained weights, else normal."""
    straight_through: Literal["identity", "theta"] = "identity"
    """Gradient of the draw: dL/dm * theta (1 - theta), or that times theta as in the code of FedPM's authors."""
    evaluation: Literal["expected", "sampled", "thresholded"] = "expected"
    """Which network's accuracy is the accuracy of the run: w0 * theta, w0 * m, or w0 * [theta >= 1/2]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.theta_init, float):
            require(0 < self.theta_init < 1, f"theta_init={self.theta_init}: needs a probability between 0 and 1")


class ScoreMethod(Method[ParametersType]):
    """Base of every method that trains scores. `Parameters` extends `ScoreParameters`."""

    networks = ("expected", "sampled", "thresholded")
    trains_added_values = False
    parameters: Any

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        form = self.parameters.weights
        if form == "auto":
            form = "keep" if task.pretrained else "signed"
        self.frozen = task.flat.initial
        if form != "keep":
            gain = math.e if form == "signed-e" else math.sqrt(2)
            self.frozen = signed_weights(self.frozen, task.flat.template, "fan-in", gain=gain)
        self.reparametrisation: Reparametrisation = BernoulliMask(self.frozen, self.parameters.straight_through)

    @staticmethod
    def default_selection(blocks: int, pretrained: bool) -> str:
        return f"last {min(5, blocks)} blocks: weights" if blocks and pretrained else "all: weights"

    def initial_thresholds(self) -> Thresholds:
        """Known to everybody from the configuration."""
        start = self.parameters.theta_init
        if start == "auto":
            start = 0.95 if self.task.pretrained else "normal"
        if isinstance(start, float):
            return np.full(self.size, int(start * FULL), dtype=np.uint32)
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        thresholds: Thresholds = normal_scores_table()[drawn >> np.uint32(22)]
        return thresholds

    def train_from(self, before: Tensor, data: Examples, turn: Turn) -> tuple[Tensor, float]:
        """Scores after local training, and the loss."""
        after = before.clone()
        adjust = _divide_by_root_mean_square if self.parameters.normalise else None
        loss = train_locally(
            self.task,
            self.parameters,
            self.reparametrisation,
            after,
            data,
            turn,
            constrain=clamp_scores_,
            adjust=adjust,
        )
        return after, loss

    @property
    def primary_network(self) -> str:
        network: str = self.parameters.evaluation
        return network

    def write_thresholds(self, thresholds: Thresholds, network: str, key: int) -> None:
        """Put one of the three networks of these probabilities into the flat model."""
        flat = self.task.flat
        if network == "expected":
            factor = (thresholds / FULL).astype(np.float32)
        elif network == "thresholded":
            factor = (thresholds >= 1 << 31).astype(np.float32)
        else:
            factor = unpack_bits(sample_bits(thresholds, key), self.size).astype(np.float32)
        torch.mul(self.frozen, torch.from_numpy(factor), out=flat.weights)


def _divide_by_root_mean_square(trained: Tensor, gradient: Tensor, epoch: int, step: int) -> None:
    scale = gradient.square().mean().sqrt()
    if scale > 0:
        gradient.div_(scale)


def scores_of_thresholds(thresholds: Thresholds) -> Tensor:
    """logit(theta), in float32 on this machine only: nothing that both sides must agree on depends on it."""
    theta = torch.from_numpy((thresholds + 0.5) / FULL)
    return torch.logit(theta).to(torch.float32)


def as_thresholds(scaled: NDArray[np.float64]) -> Thresholds:
    return np.clip(scaled, 0, FULL - 1).astype(np.uint32)


@lru_cache(maxsize=1)
def normal_scores_table() -> Thresholds:
    """sigmoid(s) at 1024 quantiles of s ~ N(0, 1), rounded to 16 bits so that no libm's last digit shows."""
    middle = [NormalDist().inv_cdf((index + 0.5) / 1024) for index in range(1024)]
    return np.array([round(65536 / (1 + math.exp(-score))) << 16 for score in middle], dtype=np.uint32)
