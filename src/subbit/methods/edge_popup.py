"""Edge-popup: the subnetwork of a random network whose edges have the highest scores.

Ramanujan, Wortsman, Kembhavi, Farhadi, Rastegari: "What's Hidden in a Randomly Weighted Neural Network?", CVPR 2020.

    before   scores s uniform in +-1 / sqrt(fan-in) (Kaiming, a = sqrt 5)
    client   every step descends on L(w0 * m), m = 1 on the share `keep` of each tensor with the largest |s|,
             straight through to |s|
    network  w0 * m

The paper speaks of the highest scores and its code ranks magnitudes; so does this. A reference: with clients=1 it is
the central algorithm, see `subbit.methods.central`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.codecs.sampler import uniforms
from subbit.config.values import require
from subbit.methods.base import State, Task
from subbit.methods.central import CentralScores
from subbit.methods.local import LocalTraining
from subbit.models.popup import TopMask, signed_weights
from subbit.randomness import derive_key


@dataclass(frozen=True)
class EdgePopupParameters(LocalTraining):
    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.1
    weight_decay: float = 1e-4
    schedule: Literal["constant", "cosine"] = "cosine"
    """Of the learning rate, over all epochs of the run: along half a cosine to 0, or none."""
    keep: float = 0.5
    """Share of the weights of each tensor that makes up the subnetwork."""
    weights: Literal["auto", "keep", "signed", "signed-scaled"] = "auto"
    """The frozen weights: the module's own (`keep`), or their signs times sqrt(2 / fan-in), the fan-in as it is or as
    many as are left of it (`signed-scaled`). `auto`: `keep` on pre-trained weights, else `signed`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.keep <= 1, f"keep={self.keep}: needs a share above 0, at most 1")


class EdgePopup(CentralScores[EdgePopupParameters]):
    name = "edge-popup"
    title = "Edge-popup: the best-scored subnetwork of a frozen network, trained in one place"
    paper = "000 (related)"
    citation = "Ramanujan et al., What's Hidden in a Randomly Weighted Neural Network?, CVPR 2020"
    Parameters = EdgePopupParameters
    presets: ClassVar = {"default": {}, "paper": {"weights": "signed", "batch_size": 128}}
    networks = ("subnetwork",)
    primary_network = "subnetwork"

    def __init__(self, parameters: EdgePopupParameters, task: Task) -> None:
        super().__init__(parameters, task)
        frozen, template, form = task.flat.initial, task.flat.template, parameters.weights
        if form == "auto":
            form = "keep" if task.pretrained else "signed"
        if form != "keep":
            share = parameters.keep if form == "signed-scaled" else 1.0
            frozen = signed_weights(frozen, template, "fan-in", share)
        self.reparametrisation: TopMask = TopMask(frozen, template, parameters.keep)

    def initial_scores(self) -> NDArray[np.float32]:
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.size)
        scores = torch.from_numpy((drawn / 2.0**31 - 1).astype(np.float32))
        for view in self.task.flat.template.views(scores):
            view.div_(math.sqrt(max(1, math.prod(view.shape[1:]))))
        initial: NDArray[np.float32] = scores.numpy()
        return initial

    def write_network(self, state: State, network: str, key: int) -> None:
        scores = torch.from_numpy(np.asarray(state["scores"]))
        self.reparametrisation.write(scores, self.task.flat.weights, key)
