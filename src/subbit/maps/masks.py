"""Masks over frozen weights: scores s are trained, the network is w0 * m.

mask        m ~ Bern(theta), theta = sigmoid(s), drawn anew in every step
threshold   m = [theta >= tau], without sampling
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subbit.codecs import Vector
from subbit.codecs.codec import Bits
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits, uniforms
from subbit.core.randomness import derive_key
from subbit.core.registry import register
from subbit.core.values import require
from subbit.maps.bound import FULL, BoundMap, added, as_thresholds, blocks
from subbit.models.popup import signed_weights
from subbit.models.reparametrisation import SCORE_LIMIT, BernoulliMask, ThresholdMask, clamp_scores_
from subbit.models.task import Task

Network = Literal["expected", "sampled", "thresholded"]


def select_blocks(blocks: int, pretrained: bool) -> str:
    """The default selection of masks: the last blocks of a pre-trained network, else all weights."""
    return f"last {min(5, blocks)} blocks: weights" if blocks and pretrained else "all: weights"


@register("map", "mask")
@dataclass(frozen=True)
class MaskMap:
    """Scores of a random mask over frozen weights: w0 * m, m ~ Bern(sigmoid(s))."""

    name: ClassVar[str] = "mask"
    trains_weights: ClassVar[bool] = False
    theta_pretrained: ClassVar[float] = 0.95
    weights: Literal["auto", "keep", "signed", "signed-e"] = "auto"
    """The frozen weights: the module's own (`keep`), or their signs times one constant per tensor, sqrt(2 / fan-in) or,
    as in the code of FedPM's authors, e / sqrt(fan-in). `auto`: `keep` on pre-trained weights, else `signed`."""
    theta_init: float | Literal["auto", "normal"] = "auto"
    """Initial probability of a one; `normal`: scores from N(0, 1); `auto`: 0.95 on pre-trained weights (0.9 with a
    threshold), else normal."""
    straight_through: Literal["identity", "theta"] = "identity"
    """Gradient of the sampling step: dL/dm * theta (1 - theta), or that times theta as in the code of FedPM's
    authors."""
    evaluation: Network = "expected"
    """The network whose accuracy is reported: w0 * theta, w0 * m, or w0 * [theta >= 1/2]."""

    def __post_init__(self) -> None:
        if isinstance(self.theta_init, float):
            require(0 < self.theta_init < 1, f"theta_init={self.theta_init}: needs a probability between 0 and 1")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained)

    def bind(self, task: Task) -> Mask:
        return Mask(self, task)


@register("map", "threshold")
@dataclass(frozen=True)
class ThresholdMap(MaskMap):
    """Scores of a thresholded mask over frozen weights: w0 * [sigmoid(s) >= tau]."""

    name: ClassVar[str] = "threshold"
    theta_pretrained: ClassVar[float] = 0.9
    """A draw needs little to change, a threshold must be crossed: 22 steps of Adam at a rate of 0.1 instead of 30."""
    tau: float = 0.5
    """A weight is kept if its theta is at least this."""
    straight_through: Literal["identity"] = "identity"
    """The factor theta is specific to FedPM's code, which samples its masks."""
    evaluation: Network = "thresholded"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.tau < 1, f"tau={self.tau}: needs a probability from 0 up to, not including, 1")


class Mask(BoundMap):
    """A sampled or thresholded mask of one task."""

    vector = "scores"
    networks = ("expected", "sampled", "thresholded")

    def __init__(self, piece: MaskMap, task: Task) -> None:
        self.piece, self.task = piece, task
        self.size = task.flat.template.size
        self.primary = piece.evaluation
        form = piece.weights
        if form == "auto":
            form = "keep" if task.pretrained else "signed"
        self.frozen = task.flat.initial
        if form != "keep":
            gain = math.e if form == "signed-e" else math.sqrt(2)
            self.frozen = signed_weights(self.frozen, task.flat.template, "fan-in", gain=gain)
        if isinstance(piece, ThresholdMap):
            self.network = ThresholdMask(self.frozen, piece.tau)
            self.cut = math.ceil(piece.tau * FULL)
        else:
            self.network = BernoulliMask(self.frozen, piece.straight_through)
            self.cut = 1 << 31

    def start(self) -> Vector:
        scores: Vector = self.scores(self.initial_thresholds()).numpy()
        return scores

    def settled(self, vector: Vector) -> Vector:
        return vector.clip(-SCORE_LIMIT, SCORE_LIMIT)

    def constrain(self, trained: Tensor) -> object:
        return clamp_scores_(trained)

    def initial_thresholds(self) -> Thresholds:
        start = self.piece.theta_init
        if start == "auto":
            start = self.piece.theta_pretrained if self.task.pretrained else "normal"
        if isinstance(start, float):
            return np.full(self.size, int(start * FULL), dtype=np.uint32)
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        thresholds: Thresholds = normal_scores_table()[drawn >> np.uint32(22)]
        return thresholds

    def scores(self, thresholds: Thresholds) -> Tensor:
        return scores_of_thresholds(thresholds)

    def moved(self, thresholds: Thresholds, after: Tensor) -> Thresholds:
        found = np.empty_like(thresholds)
        for part in blocks(self.size):
            before = scores_of_thresholds(thresholds[part])
            change = torch.sigmoid(after[part].double()) - torch.sigmoid(before.double())
            found[part] = added(thresholds[part], change.numpy())
        return found

    def draw(self, thresholds: Thresholds, key: int) -> Bits:
        """One mask: sampled or, with a threshold, the only one."""
        by_threshold = isinstance(self.piece, ThresholdMap)
        return self.cut_mask(thresholds) if by_threshold else sample_bits(thresholds, key)

    def cut_mask(self, thresholds: Thresholds) -> Bits:
        """[theta >= tau], computed with integers: theta is threshold / 2^32."""
        return pack_bits(thresholds >= self.cut)

    def write(self, vector: Vector, network: str, key: int) -> None:
        thresholds = np.empty(self.size, dtype=np.uint32)
        for part in blocks(self.size):
            scores = np.asarray(vector[part], dtype=np.float64)
            thresholds[part] = as_thresholds(FULL / (1 + np.exp(-scores)))
        self.write_thresholds(thresholds, network, key)

    def write_thresholds(self, thresholds: Thresholds, network: str, key: int) -> None:
        if network != "expected":
            bits = self.cut_mask(thresholds) if network == "thresholded" else sample_bits(thresholds, key)
        for part in blocks(self.size):
            if network == "expected":
                factor = (thresholds[part] / FULL).astype(np.float32)
            else:
                factor = unpack_bits(bits[part.start // 8 :], part.stop - part.start).astype(np.float32)
            torch.mul(self.frozen[part], self.task.flat.place(factor), out=self.task.flat.weights[part])


def scores_of_thresholds(thresholds: Thresholds) -> Tensor:
    """logit(theta)."""
    scores = torch.empty(thresholds.size)
    for part in blocks(thresholds.size):
        scores[part] = torch.logit(torch.from_numpy((thresholds[part] + 0.5) / FULL))
    return scores


def bernoulli_divergence(after: Tensor, before: Tensor) -> Tensor:
    """KL(Bern(sigmoid(after)) || Bern(sigmoid(before))), computed without log(theta).

    sigmoid(a) (a - b) + softplus(b) - softplus(a)
    """
    return torch.sigmoid(after) * (after - before) + functional.softplus(before) - functional.softplus(after)


@lru_cache(maxsize=1)
def normal_scores_table() -> Thresholds:
    """sigmoid(s) at 1024 quantiles of s ~ N(0, 1), rounded to 16 bits so that differences between libm versions
    vanish."""
    middle = [NormalDist().inv_cdf((index + 0.5) / 1024) for index in range(1024)]
    return np.array([round(65536 / (1 + math.exp(-score))) << 16 for score in middle], dtype=np.uint32)
