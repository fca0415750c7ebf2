"""Top-k: FedAvg that sends only the largest values of each change, and the rest later.

Aji, Heafield: "Sparse Communication for Distributed Gradient Descent", EMNLP 2017; error feedback: Stich, Cordonnier,
Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.

    client v = (w_k - w) + r;  sends the tenth of v that is largest, keeps the rest: r <- v - sent
    up     those values in float32 and their places, entropy-coded
    server as FedAvg

r starts at zero when a client first takes part and waits in its memory while others do. Everything ever sent and r add
up to all changes ever made. Paper 004 counts no bits for the places; here they cost what they cost
(`subbit.codecs.topk`). `fedavg` with `codec=topk`, under the name that a comparison uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod


@dataclass(frozen=True)
class TopKParameters(WeightParameters):
    codec: Literal["topk"] = "topk"


class TopK(WeightMethod[TopKParameters]):
    name = "topk"
    title = "Top-k: FedAvg with sparse changes and error feedback"
    paper = "baseline"
    citation = "Aji, Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017"
    sends_up = "largest tenth of the change, with places, float32"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = TopKParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.5, "epochs": 5},
    }
