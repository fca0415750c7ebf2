"""Weights as a random sparse map of a short vector of probabilities (paper 002).

    w = Q z, z ~ Bern(p);  around pre-trained weights w = w0 + spread * Q (z - 1/2)

Q is drawn from the seed on every machine (`subbit.models.sparse_matrix`).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from subbit.codecs import Vector
from subbit.codecs.codec import Bits
from subbit.codecs.packed import unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits, uniforms
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.randomness import derive_key
from subbit.core.registry import register
from subbit.core.values import require
from subbit.maps.bound import FULL, BoundMap, added, as_thresholds
from subbit.maps.masks import Network, select_blocks
from subbit.models.projected import Projected
from subbit.models.quantiles import beta_table
from subbit.models.select import parameter_kinds
from subbit.models.sparse_matrix import Projection, fan_ins
from subbit.models.task import Task, Turn


@register("map", "projection")
@dataclass(frozen=True)
class ProjectionMap:
    """A few probabilities; the weights are a random sparse map of their bits."""

    name: ClassVar[str] = "projection"
    trains_weights: ClassVar[bool] = False
    compression: float = 8.0
    """m / n: weights per trained probability."""
    degree: int = 10
    """Nonzeros in each row of Q; at most n."""
    q_variance: float = 6.0
    """The values of a row have variance q_variance / (degree * fan-in). With uniform p, 6 gives Q p the variance of
    Kaiming initialisation, and 4 gives it to Q z, which is what is trained."""
    around: Literal["auto", "zero", "initial"] = "auto"
    """w = Q z, or w = w0 + spread * Q (z - 1/2); `auto`: `initial` for pre-trained networks, else `zero`."""
    spread: float = 0.1
    """Around initial weights: the distance from them, in units of Q."""
    p_init: float | Literal["auto", "uniform", "half"] = "auto"
    """Initial p: uniform, 1/2 everywhere, or Beta(p_init, p_init); `auto`: half around initial weights, else
    uniform."""
    training: Literal["sampled", "continuous"] = "sampled"
    """Train with sampled bits, or with p itself."""
    resample: Literal["batch", "round"] = "batch"
    """New uniforms for every batch, or the same ones for a whole turn."""
    gate: Literal["inward", "strict"] = "inward"
    """If s is outside (0, 1): pass gradients that lead back, or none."""
    evaluation: Network = "expected"
    """The network whose accuracy is reported: of p, of draws, or of [p >= 1/2]."""

    def __post_init__(self) -> None:
        require(1 <= self.compression < math.inf, f"compression={self.compression}: needs a number from 1 up")
        require(self.degree >= 1, f"degree={self.degree}: needs at least 1")
        require(0 < self.q_variance < math.inf, f"q_variance={self.q_variance}: needs a number above 0")
        require(0 < self.spread < math.inf, f"spread={self.spread}: needs a number above 0")
        if isinstance(self.p_init, float):
            require(0.01 <= self.p_init <= 100, f"p_init={self.p_init}: needs 0.01 to 100, uniform, half or auto")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained) if pretrained else "all: weights, biases"

    def bind(self, task: Task) -> ProjectedBits:
        return ProjectedBits(self, task)


class ProjectedBits(BoundMap):
    networks = ("expected", "sampled", "thresholded")
    network: Projected

    def __init__(self, piece: ProjectionMap, task: Task) -> None:
        self.piece, self.task = piece, task
        weights = task.flat.template.size
        self.size = int(weights // piece.compression)
        require(self.size >= 1, f"compression={piece.compression}: {weights} weights leave nothing to train")
        degree = min(piece.degree, self.size)
        if degree < piece.degree:
            warnings.warn(f"degree={piece.degree}: Q has {degree} columns, so degree is {degree}", stacklevel=2)
        variances = piece.q_variance / (degree * fan_ins(task.flat))
        self.around_initial = piece.around == "initial" or (piece.around == "auto" and task.pretrained)
        spread = piece.spread if self.around_initial else 1.0
        if not self.around_initial:
            self._refuse_norms()
        key = derive_key(task.seed, "projection")
        self.projection = Projection(spread * np.sqrt(variances), self.size, degree, key)
        base: Tensor | None = None
        if self.around_initial:
            middle = np.empty(weights, dtype=np.float32)
            self.projection.multiply(np.full(self.size, 0.5, dtype=np.float32), middle)
            base = task.flat.initial - task.flat.place(middle)
        self.network = Projected(self.projection, base, training=piece.training, gate=piece.gate)
        self.primary = piece.evaluation
        # A client that has drawn another Q rejects the broadcast.
        self.vector = f"p-{self.projection.fingerprint()}"

    def _refuse_norms(self) -> None:
        kinds = parameter_kinds(self.task.flat.module)
        norms = [name for name in self.task.flat.template.names if kinds[name] == "norms"]
        if norms:
            raise ConfigError(
                f"around=zero: the gains of a normalisation belong near 1, but {norms[0]} would become random around "
                "0; use around=initial or select='all: weights, biases'"
            )

    def begin(self, turn: Turn) -> None:
        if self.piece.resample == "round":
            self.network.key = derive_key(self.task.seed, "training-draw", turn.round_number, turn.client)

    def initial_thresholds(self) -> Thresholds:
        start = self.piece.p_init
        if start == "auto":
            start = "half" if self.around_initial else "uniform"
        if start == "half":
            return np.full(self.size, 1 << 31, dtype=np.uint32)
        drawn = uniforms(derive_key(self.task.seed, "initial-p"), 0, self.size)
        return drawn if start == "uniform" else beta_table(float(start))[drawn >> np.uint32(22)]

    def start(self) -> Vector:
        return probabilities(self.initial_thresholds())

    def received(self, vector: Vector) -> Tensor:
        return torch.from_numpy(probabilities(as_thresholds(vector.astype(np.float64) * FULL)))

    def finished(self, trained: Tensor) -> Tensor:
        # During a turn s may leave [0, 1].
        return trained.clamp(0, 1)

    def scores(self, thresholds: Thresholds) -> Tensor:
        return torch.from_numpy(probabilities(thresholds))

    def moved(self, thresholds: Thresholds, after: Tensor) -> Thresholds:
        before = torch.from_numpy(probabilities(thresholds))
        return added(thresholds, (after.clamp(0, 1).double() - before.double()).numpy())

    def draw(self, thresholds: Thresholds, key: int) -> Bits:
        return sample_bits(thresholds, key)

    def settled(self, vector: Vector) -> Vector:
        return vector.clip(0, 1)

    def farthest(self) -> float:
        return 1.0

    def observed(self, received: Vector) -> dict[str, float]:
        return {"fixed": float(np.mean((received <= 0) | (received >= 1)))}

    def refuse(self, vector: Vector) -> None:
        if not (vector >= 0).all():
            raise PayloadError(f"a list of probabilities holds {vector.min():g}: needs 0 or more", "value")

    def write(self, vector: Vector, network: str, key: int) -> None:
        self.write_thresholds(as_thresholds(np.asarray(vector).astype(np.float64) * FULL), network, key)

    def write_thresholds(self, thresholds: Thresholds, network: str, key: int) -> None:
        if network == "expected":
            values = probabilities(thresholds)
        elif network == "thresholded":
            values = (thresholds >= 1 << 31).astype(np.float32)
        else:
            values = unpack_bits(sample_bits(thresholds, key), self.size).astype(np.float32)
        self.network.place(self.task.flat.place(values), self.task.flat.weights)


def probabilities(thresholds: Thresholds) -> Vector:
    return (thresholds / FULL).astype(np.float32)
