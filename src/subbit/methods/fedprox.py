"""FedProx: FedAvg whose clients are pulled back to the model they received, by mu/2 |w - w_g|^2.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020.

Down, up and server are those of `subbit.methods.weights`, the pull is in `subbit.methods.regularisers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.regularisers import RegularisedMethod, RegularisedParameters


@dataclass(frozen=True)
class FedProxParameters(RegularisedParameters):
    regulariser: Literal["fedprox"] = "fedprox"


class FedProx(RegularisedMethod[FedProxParameters]):
    name = "fedprox"
    title = "FedProx: FedAvg with a pull towards the received weights"
    paper = "baseline"
    citation = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = FedProxParameters
    presets: ClassVar = {
        "default": {},
        "paper": {
            "optimizer": "sgd",
            "learning_rate": 0.03,
            "momentum": 0.0,
            "epochs": 10,
            "batch_size": 10,
            "mu": 1.0,
        },
    }
