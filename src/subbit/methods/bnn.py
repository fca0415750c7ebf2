"""BNN: FedAvg of binarised networks; clients upload only the signs of the weights.

Courbariaux, Hubara, Soudry, El-Yaniv, Bengio: "Binarized Neural Networks", NIPS 2016, run under FedAvg as the baseline
of paper 004 (Li et al., FedMask, SenSys 2021).

    down   s, the mean of the clients' signs, as the number of +1 among them (`broadcast=sign`: their majority,
           one bit); everything that is not binarised in float32
    client latent values <- s; every step descends on L(w), w = scale * sign(latent), straight through where
           |latent| <= 1, and clips latent values to [-1, 1]
    up     sign(latent), one bit each; the change of the rest in float32
    server s = mean of the signs; the rest as FedAvg;  the network is scale * sign(s)

Selected weights with two or more dimensions outside the head are binarised. Biases, norms, running statistics
(`batchnorm=average`) and the head stay real-valued; they are sent and counted.

The magnitude of a latent value, the client's confidence in the sign, is lost in every round. This is why the baseline
is weak, in the paper and here. With `latent_policy=keep_local_if_same_sign` a client keeps its own latent value
wherever its sign agrees with the received one (from its second turn on).

Design choices. A network of +-1 needs BatchNorm after every layer, which an arbitrary module may not have. By default
each tensor is scaled by the mean magnitude of its initial weights (`scale=layer`; Rastegari et al., "XNOR-Net", ECCV
2016), which both sides know; latent values start at the weights divided by that scale. `activations=binary` replaces
activations that are modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from subbit.codecs import Vector
from subbit.core.devices import host, number
from subbit.core.errors import ModelError
from subbit.data.examples import Data
from subbit.exchange.exchange import Payloads, Update
from subbit.exchange.signs import SignsDown, SignsExchange, SignsUp
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import BoundMap
from subbit.methods.method import Method
from subbit.models.binary import BinaryWeights, binarise_activations_
from subbit.models.flat import FlatModel
from subbit.models.select import find_head, parameter_kinds
from subbit.models.task import Task, Turn

OWN = "latents"


@dataclass(frozen=True)
class BinaryMap:
    name: ClassVar[str] = "binary"
    trains_weights: ClassVar[bool] = True
    scale: Literal["layer", "one"] = "layer"
    """Magnitude of a binarised weight: the mean magnitude of the tensor's initial weights, or 1."""
    activations: Literal["real", "binary"] = "real"

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return "all"

    def bind(self, task: Task) -> Binary:
        return Binary(self, task)


class Binary(BoundMap):
    """Latent values of the binarised weights, the other weights unchanged, and running statistics."""

    vector = "signs"
    networks = ("binary", "mean")
    primary = "binary"
    network: BinaryWeights

    def __init__(self, piece: BinaryMap, task: Task) -> None:
        self.flat, self.size = task.flat, task.flat.template.size
        self.statistics = task.flat.statistics is not None
        self.binary = binarised_places(task.flat)
        self.signs = int(self.binary.sum())
        scales = mean_sizes(task.flat) if piece.scale == "layer" else torch.ones(self.size)
        self.network = BinaryWeights(self.binary.to(self.flat.device), scales.to(self.flat.device))
        self._latents = (task.flat.initial.cpu() / scales).clamp(-1, 1)[self.binary]
        self.real = self.split(task.flat.weights.cpu())[1].size

    def latents(self) -> Tensor:
        return self._latents

    def start(self) -> Vector:
        start: Vector = self.join(self._latents, self.split(self.flat.weights.cpu())[1]).numpy()
        return start

    def join(self, latents: Tensor, real: Vector) -> Tensor:
        vector, weights = torch.empty(self.size), self.size - self.signs
        vector[self.binary] = latents
        vector[~self.binary] = torch.from_numpy(real[:weights])
        if self.flat.statistics is not None:
            self.flat.statistics.copy_(torch.from_numpy(real[weights:]))
        return vector

    def split(self, trained: Tensor) -> tuple[Tensor, Vector]:
        real: Vector = trained.detach()[~self.binary].numpy()
        if self.flat.statistics is not None:
            real = np.concatenate([real, host(self.flat.statistics)])
        return trained[self.binary], real

    def constrain(self, trained: Tensor) -> object:
        return self.network.clip_(trained)

    def write(self, vector: Vector, network: str, key: int) -> None:
        values, weights = self.flat.place(vector), self.flat.weights
        if network == "mean":
            self.network.scaled(values, weights)
        else:
            self.network.write(values, weights, key)


@dataclass(frozen=True)
class LatentLocal(Local):
    latent_policy: Literal["overwrite", "keep_local_if_same_sign"] = "overwrite"


@dataclass(frozen=True)
class BnnParameters:
    map: BinaryMap = BinaryMap()
    local: LatentLocal = LatentLocal(learning_rate=0.01)
    up: SignsUp = SignsUp()
    down: SignsDown = SignsDown()


class Bnn(Method[BnnParameters]):
    name = "bnn"
    title = "BNN: FedAvg of binarised weights"
    paper = "004 (baseline)"
    citation = "Courbariaux et al., Binarized Neural Networks, NIPS 2016"
    sends_up = "one sign per binarised weight; changes of the rest in float32"
    sends_down = "mean signs as entropy-coded counts; the rest in float32"
    Parameters = BnnParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"scale": "one", "activations": "binary", "codec": "packed", "learning_rate": 1e-3, "epochs": 5},
    }
    map: Binary

    def __init__(self, parameters: BnnParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = SignsExchange(task, self.map, parameters.up, parameters.down)

    @classmethod
    def prepare(cls, module: nn.Module, parameters: BnnParameters, classes: int, key: int) -> str | None:
        if parameters.map.activations == "binary":
            binarise_activations_(module)
        return None

    def train(self, view: Payloads, data: Data, turn: Turn) -> Update:
        trained = self.received(view, turn)
        observed = self.trainer.train(trained, data, turn)
        if self.parameters.local.latent_policy == "keep_local_if_same_sign":
            turn.memory[OWN] = trained[self.map.binary].numpy()
        payloads, also = self.exchange.say(view, trained, turn)
        return Update(payloads, len(data), {**observed, **also})

    def received(self, view: Payloads, turn: Turn) -> Tensor:
        """The vector to train: the broadcast, with the client's own latent values where the signs agree."""
        trained = self.exchange.trained(view)
        if OWN in turn.memory:
            own, latents = torch.from_numpy(turn.memory[OWN]), trained[self.map.binary]
            trained[self.map.binary] = torch.where((own >= 0) == (latents >= 0), own, latents)
        return trained


def binarised_places(flat: FlatModel) -> Tensor:
    """Mask of the flat vector: weights with two or more dimensions outside the head."""
    kinds = parameter_kinds(flat.module)
    try:
        head = find_head(flat.module) + "."
    except ModelError:
        head = "/"  # Matches no name: without a head all weights are binarised.
    chosen = [kinds[name] == "weights" and not name.startswith(head) for name in flat.template.names]
    if not any(chosen):
        raise ModelError(f"none of {len(chosen)} selected parameters is a weight outside the head: nothing to binarise")
    return torch.from_numpy(np.repeat(chosen, flat.template.counts))


def mean_sizes(flat: FlatModel) -> Tensor:
    """For every place, the mean magnitude of its tensor's initial weights; 1 where these are all zero."""
    means = [number(tensor.abs().double().mean()) or 1.0 for tensor in flat.template.views(flat.initial.cpu())]
    return torch.from_numpy(np.repeat(means, flat.template.counts).astype(np.float32))
