"""MOON: FedAvg whose clients contrast their features with those of the global and of their own last model.

Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021.

Down, up and server are those of `subbit.methods.weights`; the contrast, and what was decided about it, is in
`subbit.methods.regularisers`. A client keeps its last model between its turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.regularisers import RegularisedMethod, RegularisedParameters


@dataclass(frozen=True)
class MoonParameters(RegularisedParameters):
    regulariser: Literal["moon"] = "moon"


class Moon(RegularisedMethod[MoonParameters]):
    name = "moon"
    title = "MOON: FedAvg with a contrast of features"
    paper = "baseline"
    citation = "Li, He, Song, Model-Contrastive Federated Learning, CVPR 2021"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = MoonParameters
    presets: ClassVar = {
        "default": {},
        "paper": {
            "optimizer": "sgd",
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 1e-5,
            "epochs": 10,
        },
    }
