"""FedAvg: clients train a vector, the server adds the weighted mean of their changes.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017.

`select` decides what is trained: "all" is full fine-tuning, "head" linear probing. `map` decides how: by default the
weights themselves are trained; `map=mask` trains scores of a mask over them, `map=projection` a short vector that a
random map expands to the weights. Every codec, uplink or downlink, works with every map.

The variants below are common baselines: FedAvg with one codec or regulariser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from subbit.core.errors import ModelError
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.local.trainer import LocalWeights, Trainer
from subbit.maps import MapChoice
from subbit.maps.weights import WeightMap
from subbit.methods.method import Method
from subbit.methods.variants import Variant
from subbit.models.select import find_head
from subbit.models.task import Task

RATE, RATE_OF_PRETRAINED = 1e-3, 5e-5
"""Adam begins every turn with steps of full length in all weights, whatever the gradient. A pre-trained network does
not survive many of those at the first rate (docs/methods.md); the second is the default of Hugging Face's Trainer,
which lets it fall, too."""


@dataclass(frozen=True)
class FedAvgParameters:
    map: MapChoice = MapChoice()
    local: LocalWeights = LocalWeights(learning_rate="auto", schedule="auto")
    """`learning_rate=auto`: where Adam trains the weights of a pre-trained network 0.00005, which falls over the rounds
    (`schedule=auto`: cosine), else 0.001, constant. A rate that is given stays as it is, unless a schedule is given."""
    up: VectorUp = VectorUp()
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()

    def __post_init__(self) -> None:
        if self.local.learning_rate != "auto" and self.local.schedule == "auto":
            object.__setattr__(self, "local", replace(self.local, schedule="constant"))


def trains_only_the_head(task: Task) -> bool:
    try:
        head = f"{find_head(task.flat.module)}."
    except ModelError:
        return False
    return all(name.startswith(head) for name in task.flat.template.names)


def settled(parameters: FedAvgParameters, task: Task) -> LocalWeights:
    """With what `auto` stands for."""
    local = parameters.local
    adam = local.optimizer.name.startswith("adam")
    kept = isinstance(parameters.map.map, WeightMap) and task.pretrained and not trains_only_the_head(task)
    if local.learning_rate == "auto":
        local = replace(local, learning_rate=RATE_OF_PRETRAINED if adam and kept else RATE)
    if local.schedule == "auto":
        local = replace(local, schedule="cosine" if adam and kept else "constant")
    return local


class FedAvg(Method[FedAvgParameters]):
    name = "fedavg"
    title = "FedAvg: fine-tuning of the weights themselves"
    paper = "baseline"
    citation = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    sends_up = "change of the trained weights, float32 or compressed"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = FedAvgParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.0, "epochs": 5},
    }

    def __init__(self, parameters: FedAvgParameters, task: Task) -> None:
        parameters = replace(parameters, local=settled(parameters, task))
        super().__init__(parameters, task)
        self.map = parameters.map.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = VectorExchange(task, parameters, self.map)


TOPK = Variant(
    FedAvg,
    "topk",
    title="Top-k: FedAvg with sparse changes and error feedback",
    citation="Aji, Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017",
    sends_up="largest tenth of the change, with places, float32",
    words={"codec": "topk"},
    presets={"default": {}, "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.5, "epochs": 5}},
)
"""Error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. Paper 004 does not count the
bits of the indices; they are counted here (`subbit.codecs.topk`)."""

EDEN = Variant(
    FedAvg,
    "eden",
    title="EDEN: FedAvg with rotated, quantised changes",
    citation="Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean Estimation, ICML 2022",
    sends_up="change of the trained weights, about `bits` bits a value",
    words={"codec": "eden"},
)
"""Paper 000 reports 0.69 to 0.72 bits per parameter for "1-bit" EDEN, which one bit per value cannot reach; `bits=0.7`
does."""

DRIVE = Variant(
    FedAvg,
    "drive",
    title="DRIVE: FedAvg with one-bit changes",
    citation="Vargaftik et al., DRIVE: One-bit Distributed Mean Estimation, NeurIPS 2021",
    sends_up="change of the trained weights, one bit a value",
    words={"codec": "drive"},
)

QSGD = Variant(
    FedAvg,
    "qsgd",
    title="QSGD: FedAvg with stochastically rounded changes",
    citation="Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NIPS 2017",
    sends_up="change of the trained weights as entropy-coded levels",
    words={"codec": "qsgd"},
    presets={"default": {"levels": "sqrt"}, "paper": {"levels": 2}},
)
"""`levels=sqrt` is the paper's dense regime, about two bits per value. Comparisons with mask methods use 2 levels
(`preset=paper`): far fewer bits, but an error several times the norm of the change, which works only with a mean over
many clients and a small learning rate. They report a bound for an Elias code; bits here are measured."""

FEDPROX = Variant(
    FedAvg,
    "fedprox",
    title="FedProx: FedAvg with a pull towards the received weights",
    citation="Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
    sends_up=FedAvg.sends_up,
    words={"regulariser": "fedprox"},
    presets={
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.03, "momentum": 0.0}
        | {"epochs": 10, "batch_size": 10, "mu": 1.0},
    },
)

MOON = Variant(
    FedAvg,
    "moon",
    title="MOON: FedAvg with a contrast of features",
    citation="Li, He, Song, Model-Contrastive Federated Learning, CVPR 2021",
    sends_up=FedAvg.sends_up,
    words={"regulariser": "moon"},
    presets={
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1e-5, "epochs": 10},
    },
)
"""A client keeps its last model between its turns."""
