"""Edge-popup: the subnetwork of a random network whose edges have the highest scores.

Ramanujan, Wortsman, Kembhavi, Farhadi, Rastegari: "What's Hidden in a Randomly Weighted Neural Network?", CVPR 2020.

    before   scores s uniform in +-1 / sqrt(fan-in) (Kaiming, a = sqrt 5)
    client   every step descends on L(w0 * m), m = 1 on the share `keep` of each tensor with the largest |s|,
             straight through to |s|
    network  w0 * m

The paper says highest scores, but its code ranks by magnitude, as does this one. Meant as a reference: with clients=1
it is the centralised algorithm, see `subbit.exchange.whole_scores`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from subbit.codecs import Vector
from subbit.codecs.sampler import uniforms
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.exchange.whole_scores import central_exchange
from subbit.local.kept_moments import CentralTrainer
from subbit.local.optimizers import Sgd
from subbit.local.training import Local
from subbit.maps.bound import BoundMap
from subbit.maps.masks import select_blocks
from subbit.methods.method import Method
from subbit.models.popup import TopMask, signed_weights
from subbit.models.task import Task


@dataclass(frozen=True)
class PopupMap:
    name: ClassVar[str] = "popup"
    trains_weights: ClassVar[bool] = False
    keep: float = 0.5
    """Share of each tensor's weights in the subnetwork."""
    weights: Literal["auto", "keep", "signed", "signed-scaled"] = "auto"
    """The frozen weights: the module's own (`keep`), or their signs times sqrt(2 / fan-in), with the full fan-in
    (`signed`) or the fan-in left after masking (`signed-scaled`). `auto`: `keep` on pre-trained weights, else
    `signed`."""

    def __post_init__(self) -> None:
        require(0 < self.keep <= 1, f"keep={self.keep}: needs a share above 0, at most 1")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained)

    def bind(self, task: Task) -> Popup:
        return Popup(self, task)


class Popup(BoundMap):
    vector = "scores"
    networks = ("subnetwork",)
    primary = "subnetwork"

    def __init__(self, piece: PopupMap, task: Task) -> None:
        self.task, self.size = task, task.flat.template.size
        self.frozen, form = task.flat.initial, piece.weights
        if form == "auto":
            form = "keep" if task.pretrained else "signed"
        if form != "keep":
            share = piece.keep if form == "signed-scaled" else 1.0
            self.frozen = signed_weights(self.frozen, task.flat.template, "fan-in", share)
        self.network = TopMask(self.frozen, task.flat.template, piece.keep)

    def start(self) -> Vector:
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        scores = torch.from_numpy((drawn / 2.0**31 - 1).astype(np.float32))
        for view in self.task.flat.template.views(scores):
            view.div_(math.sqrt(max(1, math.prod(view.shape[1:]))))
        start: Vector = scores.numpy()
        return start

    def write(self, vector: Vector, network: str, key: int) -> None:
        self.network.write(self.task.flat.place(vector), self.task.flat.weights, key)


@dataclass(frozen=True)
class EdgePopupParameters:
    map: PopupMap = PopupMap()
    local: Local = Local(optimizer=Sgd(weight_decay=1e-4), learning_rate=0.1, schedule="cosine")
    """The cosine schedule spans all epochs of the run."""


class EdgePopup(Method[EdgePopupParameters]):
    name = "edge-popup"
    title = "Edge-popup: best-scored subnetwork, trained in one place"
    paper = "000 (related)"
    citation = "Ramanujan et al., What's Hidden in a Randomly Weighted Neural Network?, CVPR 2020"
    sends_up = "scores, float32"
    sends_down = "scores, float32"
    Parameters = EdgePopupParameters
    presets: ClassVar = {"default": {}, "paper": {"weights": "signed", "batch_size": 128}}

    def __init__(self, parameters: EdgePopupParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = CentralTrainer(task, parameters.local, self.map)
        self.exchange = central_exchange(task, self.map)
