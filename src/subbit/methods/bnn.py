"""BNN: FedAvg of binarised networks; only signs of weights go up.

Courbariaux, Hubara, Soudry, El-Yaniv, Bengio: "Binarized Neural Networks", NIPS 2016, under FedAvg as in paper 004 (Li
et al., FedMask, SenSys 2021), which compares with it.

    down   s, the mean of the clients' signs, as the number of +1 among them (`down=sign`: their majority, one bit);
           everything that is not binarised in float32
    client latent values <- s; every step descends on L(w), w = scale * sign(latent), straight through where
           |latent| <= 1, and clips latent values to [-1, 1]
    up     sign(latent), one bit each; the change of the rest in float32
    server s = mean of the signs; the rest as FedAvg;  the network is scale * sign(s)

Binarised are the selected weights of two dimensions or more outside the head. Biases, norms, running statistics
(`batchnorm=average`) and the head stay real, travel, and are counted.

The size of a latent value, which says how sure a client is of a sign, is lost in every round. That is why this baseline
is weak, in the paper and here: `latent_policy=keep_local_if_same_sign` lets a client go on with its own latent value
wherever the received sign agrees with it; in its first turn it has none.

Decisions. A network of +-1 needs BatchNorm behind every layer, which an arbitrary module does not have: by default each
tensor keeps the mean size of its first weights (`scale=layer`; Rastegari et al., "XNOR-Net", ECCV 2016), known to both
sides; latent values start from the weights in that unit. `activations=binary` replaces activations that are modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.aggregate import MaskCounts, WeightedMean
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.bits import count_ones, pack_bits
from subbit.codecs.sampler import thresholds_of_counts
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ModelError
from subbit.exchange.honest import FAR, check_variances
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.local import LocalTraining, train_locally
from subbit.methods.masks import MOST_MASKS, counts_of
from subbit.models.binary import BinaryWeights, binarise_activations_
from subbit.models.flat import FlatModel
from subbit.models.selection import find_head, parameter_kinds
from subbit.randomness import derive_key


@dataclass(frozen=True)
class BnnParameters(LocalTraining):
    learning_rate: float = 0.01
    latent_policy: Literal["overwrite", "keep_local_if_same_sign"] = "overwrite"
    down: Literal["mean", "sign"] = "mean"
    scale: Literal["layer", "one"] = "layer"
    """Size of a binarised weight: the mean size of the tensor's first weights, or 1."""
    activations: Literal["real", "binary"] = "real"
    codec: Literal["mask", "range", "packed"] = "mask"
    """`mask` takes the smallest, with the broadcast counts as prior; `packed` costs one bit per sign."""


class _Sums:
    order_free = False

    def __init__(self, signs: int, real: int) -> None:
        self.signs, self.real = MaskCounts(signs), WeightedMean(real)


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
    networks = ("binary", "mean")
    primary_network = "binary"
    trains_added_values = True

    def __init__(self, parameters: BnnParameters, task: Task) -> None:
        super().__init__(parameters, task)
        require(
            task.participants <= MOST_MASKS, f"{task.participants} clients a round: at most {MOST_MASKS} signs add up"
        )
        self.binary = binarised_places(task.flat)
        self.signs = int(self.binary.sum())
        self.real = self._real(task.flat.weights).size
        scales = mean_sizes(task.flat) if parameters.scale == "layer" else torch.ones(self.size)
        self.reparametrisation = BinaryWeights(self.binary, scales)
        self._latents = (task.flat.initial / scales).clamp(-1, 1)[self.binary]

    @classmethod
    def prepare(cls, module: nn.Module, parameters: BnnParameters, classes: int, key: int) -> str | None:
        if parameters.activations == "binary":
            binarise_activations_(module)
        return None

    # What travels: signs, and one vector of everything real.

    def down_parts(self) -> tuple[Part, ...]:
        return self._parts("counts")

    def up_parts(self) -> tuple[Part, ...]:
        return self._parts(self.parameters.codec)

    def _parts(self, codec: str) -> tuple[Part, ...]:
        signs, real = Part("signs", make_codec(codec), self.signs), Part("real", make_codec("dense"), self.real)
        return (signs, real) if self.real else (signs,)

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    def shared(self, part: Part, view: Payloads | None, round_number: int, client: int) -> Shared:
        if part.name == "real":
            return Shared(part.size)
        if view is None:
            return Shared(part.size, limit=self.task.participants)
        # What most clients chose, a client will likely choose again.
        counts: Counts = view["signs"]
        prior = thresholds_of_counts(counts.total, "mean")[counts.values]
        return Shared(part.size, key=derive_key(self.task.seed, "codec", round_number, client), thresholds=prior)

    def _real(self, weights: Tensor) -> NDArray[np.float32]:
        real = weights.detach()[~self.binary].numpy()
        statistics = self.task.flat.statistics
        return real if statistics is None else np.concatenate([real, statistics.numpy()])

    def _vector(self, counts: Counts, real: NDArray[Any], turn: Turn | None = None) -> Tensor:
        """What is trained, from what was received: latent values and real ones. Running statistics are written."""
        latents = self._latents
        if counts.total:
            balance = 2 * counts.values.astype(np.int64) - counts.total
            latents = torch.from_numpy((balance / counts.total).astype(np.float32))
        if turn is not None and "latents" in turn.memory:
            own = torch.from_numpy(turn.memory["latents"])
            latents = torch.where((own >= 0) == (latents >= 0), own, latents)
        vector, weights = torch.empty(self.size), self.size - self.signs
        vector[self.binary] = latents
        vector[~self.binary] = torch.from_numpy(real[:weights])
        if self.task.flat.statistics is not None:
            self.task.flat.statistics.copy_(torch.from_numpy(real[weights:]))
        return vector

    # The client half.

    def train(self, view: Payloads, data: Examples, turn: Turn) -> Update:
        received = view.get("real", np.zeros(0, dtype=np.float32))
        trained = self._vector(view["signs"], received, turn)
        before = pack_bits((trained[self.binary] >= 0).numpy())
        clip = self.reparametrisation.clip_
        loss = train_locally(self.task, self.parameters, self.reparametrisation, trained, data, turn, constrain=clip)
        latents = trained[self.binary].numpy()
        if self.parameters.latent_policy == "keep_local_if_same_sign":
            turn.memory["latents"] = latents
        signs = pack_bits(latents >= 0)
        change = as_float32(self._real(trained) - received)
        return Update({"signs": signs, "real": change}, len(data), {"loss": loss, "flips": count_ones(signs ^ before)})

    # The server half.

    def start(self) -> State:
        """An empty count: the first latent values follow from the weights that everybody has."""
        real = self._real(self.task.flat.weights).copy()
        return {"counts": np.zeros(self.signs, dtype=np.uint16), "total": 0, "real": real}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        counts = counts_of(state)
        if self.parameters.down == "sign" and counts.total:
            counts = Counts(1, (2 * counts.values.astype(np.int64) >= counts.total).astype(np.uint16))
        return {"signs": counts, "real": state["real"]}

    def examine(self, view: Payloads, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        if self.task.flat.statistics is not None:
            weights = self.size - self.signs
            check_variances(self.task.flat, view["real"][weights:], payloads["real"][weights:])

    def farthest(self, part: Part, view: Payloads) -> float:
        # Where running variances are among what is real: these are squares, so that their bound is one too.
        return super().farthest(part, view) * (1 if self.task.flat.statistics is None else FAR)

    def accumulator(self) -> _Sums:
        return _Sums(self.signs, self.real)

    def accumulate(
        self, accumulator: _Sums, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.signs.add(payloads["signs"])
        if self.real:
            accumulator.real.add(payloads["real"], examples)

    def step(self, state: State, accumulator: _Sums, round_number: int) -> State:
        signs, real = accumulator.signs, np.asarray(state["real"], dtype=np.float64) + accumulator.real.mean()
        return {"counts": signs.counts, "total": signs.total, "real": as_float32(real)}

    # Evaluation.

    def write_network(self, state: State, network: str, key: int) -> None:
        vector, weights = self._vector(counts_of(state), np.asarray(state["real"])), self.task.flat.weights
        if network == "mean":
            self.reparametrisation.scaled(vector, weights)
        else:
            self.reparametrisation.write(vector, weights, key)


def binarised_places(flat: FlatModel) -> Tensor:
    """Weights of two dimensions or more outside the head: a mask of the flat vector."""
    kinds = parameter_kinds(flat.module)
    try:
        head = find_head(flat.module) + "."
    except ModelError:
        head = "/"  # In no name: without a head all weights are binarised.
    chosen = [kinds[name] == "weights" and not name.startswith(head) for name in flat.template.names]
    if not any(chosen):
        raise ModelError(f"none of {len(chosen)} selected parameters is a weight outside the head: nothing to binarise")
    return torch.from_numpy(np.repeat(chosen, flat.template.counts))


def mean_sizes(flat: FlatModel) -> Tensor:
    """At every place the mean size of its tensor's first weights; 1 where these are all zero."""
    means = [float(tensor.abs().double().mean()) or 1.0 for tensor in flat.template.views(flat.initial)]
    return torch.from_numpy(np.repeat(means, flat.template.counts).astype(np.float32))
