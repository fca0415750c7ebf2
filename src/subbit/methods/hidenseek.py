"""HideNseek: learns the signs of the weights that survive data-free pruning.

Vallapuram, Zhou, Kwon, Lee, Xu, Hui: "HideNseek: Federated Lottery Ticket via Server-side Pruning and Sign Supermask",
2022. Implemented from the abstract and its references; `docs/methods.md` lists our own choices.

    before   the frozen weights w0 are pruned once, by synaptic saliency and without data (`subbit.models.pruning`);
             both sides compute it from w0, nothing is sent
    down     s, the mean of the clients' signs over the survivors, as the number of +1 among them
    client   every step descends on L(w), w = w0 * sign(s) on the survivors and 0 elsewhere, sign(0) = 1;
             straight through: dL/ds = dL/dw * w0 where |s| <= 1, and s is clipped to [-1, 1]
    up       sign(s), one bit per survivor: keep * d bits
    server   s = mean of the signs;  the network is w0 * sign(s)

The name of the broadcast contains a hash of the survivors, so a client that pruned differently rejects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from subbit.codecs import Vector
from subbit.codecs.sampler import uniforms
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.exchange.signs import NOTHING, SignsDown, SignsExchange, SignsUp
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import BoundMap
from subbit.maps.masks import select_blocks
from subbit.methods.method import Method
from subbit.models.pruning import input_of_ones, surviving_places
from subbit.models.reparametrisation import SignMask
from subbit.models.task import Task


@dataclass(frozen=True)
class SurvivorMap:
    name: ClassVar[str] = "survivors"
    trains_weights: ClassVar[bool] = False
    keep: float = 0.5
    """Share of the weights that survives; about the uplink's bits per parameter."""
    prune_iterations: int = 1
    saliency: Literal["synflow", "magnitude"] = "synflow"
    """`magnitude` keeps the largest weights, without a forward pass, for modules that cannot compute in float64."""
    prune_scope: Literal["tensor", "network"] = "tensor"
    """Keep the same share of every tensor, or the best across the whole network."""
    score_init: float | Literal["auto", "uniform"] = "auto"
    """Initial score; `uniform`: drawn from [-1, 1]; `auto`: 1 on pre-trained weights, else uniform."""

    def __post_init__(self) -> None:
        require(0 < self.keep <= 1, f"keep={self.keep}: needs a share above 0, at most 1")
        require(self.prune_iterations >= 1, f"prune_iterations={self.prune_iterations}: needs at least 1")
        if isinstance(self.score_init, float):
            require(-1 <= self.score_init <= 1, f"score_init={self.score_init}: needs a number between -1 and 1")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained)

    def bind(self, task: Task) -> Survivors:
        return Survivors(self, task)


class Survivors(BoundMap):
    networks = ("signs", "mean")
    primary = "signs"
    network: SignMask
    real = 0

    def __init__(self, piece: SurvivorMap, task: Task) -> None:
        self.piece, self.task = piece, task
        ones = input_of_ones(task.form.single.shape, task.form.single.dtype) if piece.saliency == "synflow" else None
        per_tensor = piece.prune_scope == "tensor"
        places = surviving_places(task.flat, ones, piece.keep, piece.prune_iterations, per_tensor)
        self.size = self.signs = len(places)
        self.vector = "signs-" + blake2b(places.astype("<i8").tobytes(), digest_size=4).hexdigest()
        self.network = SignMask(task.flat.initial, task.flat.place(places))

    def latents(self) -> Tensor:
        start = self.piece.score_init
        if start == "auto":
            start = 1.0 if self.task.pretrained else "uniform"
        if isinstance(start, float):
            return torch.full((self.size,), start)
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        return torch.from_numpy((drawn / 2.0**31 - 1).astype(np.float32))

    def start(self) -> Vector:
        scores: Vector = self.latents().numpy()
        return scores

    def join(self, latents: Tensor, real: Vector) -> Tensor:
        return latents

    def split(self, trained: Tensor) -> tuple[Tensor, Vector]:
        return trained, NOTHING

    def constrain(self, trained: Tensor) -> object:
        return trained.clamp_(-1, 1)

    def write(self, vector: Vector, network: str, key: int) -> None:
        scores, weights = self.task.flat.place(vector), self.task.flat.weights
        if network == "mean":
            self.network.scaled(scores, weights)
        else:
            self.network.write(scores, weights, key)


@dataclass(frozen=True)
class HideNseekParameters:
    map: SurvivorMap = SurvivorMap()
    local: Local = Local(learning_rate=0.3)
    """Even if all clients agree, a sign flips only after 1 / learning_rate steps of Adam; in a shorter turn none
    does."""
    up: SignsUp = SignsUp()
    down: SignsDown = SignsDown()


class HideNseek(Method[HideNseekParameters]):
    name = "hidenseek"
    title = "HideNseek: signs of the weights that survive data-free pruning"
    paper = "000 (related)"
    citation = "Vallapuram et al., HideNseek: Federated Lottery Ticket via Server-side Pruning and Sign Supermask, 2022"
    sends_up = "one sign per surviving weight, entropy-coded (paper: packed)"
    sends_down = "mean signs of the survivors, as entropy-coded counts"
    Parameters = HideNseekParameters
    presets: ClassVar = {"default": {}, "paper": {"codec": "packed", "prune_scope": "network"}}

    def __init__(self, parameters: HideNseekParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = SignsExchange(task, self.map, parameters.up, parameters.down)
