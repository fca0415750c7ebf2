"""FedAvg: clients fine-tune the selected weights themselves; the server adds the weighted mean of their changes.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.

`select` decides what is trained: "all" is full fine-tuning, "head" linear probing. The algorithm is that of
`subbit.methods.weights`, as it stands there.
"""

from __future__ import annotations

from typing import ClassVar

from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod


class FedAvg(WeightMethod[WeightParameters]):
    name = "fedavg"
    title = "FedAvg: fine-tuning of the weights themselves"
    paper = "baseline"
    citation = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    private = True
    Parameters = WeightParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.0, "epochs": 5},
    }
