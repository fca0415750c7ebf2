"""Zampling: weights as a random sparse map of a few bits; only these bits are learned and sent.

Villani, Natale, Mallmann-Trenn: "Trading-off Accuracy and Communication Cost in Federated Learning", 2024 (paper 002).
m weights, n = floor(m / compression) probabilities p; Q is an m x n matrix with `degree` random values in each row,
which every machine draws from the seed (`subbit.maps.projection`).

    down   p: how many of the last K bits were one at each place (paper: float32)
    client s = p; every step draws z ~ Bern(clip(s)) and descends on L(Q z) with dL/ds = Q' dL/dw, gated outside (0, 1);
           s may leave [0, 1] until the turn ends, then p_k = clip(s) and z_k ~ Bern(p_k)
    up     z_k: where it differs from the draw [u < p] that both sides make with the uniforms of z_k (paper: n bits)
    server p = mean of z_k, kept within [clamp, 1 - clamp] (paper: clamp = 0)

Without a training signal, the mean of K bits drifts until it is 0 or 1 (the Wright-Fisher process of genetics). For
K = 10 more than two thirds of all places are fixed after ten rounds, and with the paper's gate they stay fixed. Hence
the clamp.

Around pre-trained weights w0 the map is w = w0 + spread * Q (z - 1/2) and p starts at 1/2. One client with
`codec=dense`, which sends p itself, is the paper's Local Zampling; `training=continuous`, w = Q p, its Continuous
Model. Any other vector codec sends the change of p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from subbit.codecs import Codec
from subbit.codecs.codec import Bits
from subbit.codecs.packed import count_ones
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.codecs.smallest import Flips
from subbit.core.pieces import choice, only_with
from subbit.core.randomness import derive_key
from subbit.exchange.by_codec import bits_or_vectors, follows_from_codec, loses_changes
from subbit.exchange.exchange import State
from subbit.exchange.posterior import Beta, BitsAggregate, BitsDown, BitsExchange, BitsUp, Moved, counts_of
from subbit.local.stopping import StoppedLocal
from subbit.local.trainer import Trainer
from subbit.maps.bound import FULL, as_thresholds
from subbit.maps.projection import ProjectionMap
from subbit.methods.fedpm import carries_masks
from subbit.methods.method import Method
from subbit.models.task import Task, Turn


@dataclass(frozen=True)
class DrawUp(BitsUp):
    """Uploads the bits z_k: as differences from a draw that both sides make, or as they are."""

    part: ClassVar[str] = "bits"
    codec: Codec[Any] = choice("codec", Flips(), accepts=carries_masks)
    """`flips`: the places where z_k differs from a draw that both sides know; `mask`: z_k, coded with p as prior;
    `packed`: z_k in n bits; `dense`: p_k itself in float32, which is then averaged."""
    error_feedback: bool | Literal["auto"] = only_with("codec", loses_changes, "auto")
    """Where changes of p are sent: the client adds what was lost to its next change; `auto`: for biased codecs."""

    @property
    def as_flips(self) -> bool:
        return isinstance(self.codec, Flips)

    def reference_key(self, task: Task, round_number: int, client: int) -> int:
        return derive_key(task.seed, "reference-bits", round_number, client)

    def uniforms_key(self, exchange: BitsExchange, round_number: int, client: int) -> int | None:
        return self.reference_key(exchange.task, round_number, client) if self.as_flips else None

    def say(self, exchange: BitsExchange, view: Thresholds, moved: Moved, turn: Turn) -> tuple[Bits, dict[str, float]]:
        key = self.reference_key(exchange.task, turn.round_number, turn.client)
        bits, edge = sample_bits(moved.thresholds, key), int(exchange.beta.clamp * FULL)
        observed = {"fixed": float(np.mean((view <= edge) | (view >= FULL - 1 - edge)))}
        if self.as_flips:
            bits ^= sample_bits(view, key)
            observed["flips"] = count_ones(bits)
        return bits, observed

    def mask(self, exchange: BitsExchange, view: Thresholds, payload: Bits, where: tuple[int, int]) -> Bits:
        if not self.as_flips:
            return payload
        bits = sample_bits(view, self.reference_key(exchange.task, *where))
        bits ^= payload
        return bits


@dataclass(frozen=True)
class ZamplingParameters:
    map: ProjectionMap = ProjectionMap()
    local: StoppedLocal = StoppedLocal(learning_rate=0.03)
    up: DrawUp = DrawUp()
    down: BitsDown = BitsDown()
    aggregate: BitsAggregate = BitsAggregate(Beta(reset_every=1))
    implied = staticmethod(follows_from_codec)


class Zampling(Method[ZamplingParameters]):
    name = "zampling"
    title = "Zampling: weights as a random sparse map of a few learnt bits"
    paper = "002"
    citation = "Villani et al., Trading-off Accuracy and Communication Cost in Federated Learning, 2024"
    sends_up = "flips of few sampled bits, exactly coded (paper: the bits, packed)"
    sends_down = "probabilities of the bits, as entropy-coded counts (paper: float32)"
    Parameters = ZamplingParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"epochs": 100, "batch_size": 128, "patience": 10, "gate": "strict", "clamp": 0.0}
        | {"learning_rate": 0.1, "codec": "packed", "down_codec": "dense", "evaluation": "sampled"},
    }

    def __init__(self, parameters: ZamplingParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = bits_or_vectors(task, parameters, self.map)

    def thresholds(self, state: State) -> Thresholds:
        """p of a state, as integers."""
        if isinstance(self.exchange, BitsExchange):
            return self.exchange.thresholds(counts_of(state))
        return as_thresholds(np.asarray(state[self.map.vector], dtype=np.float64) * FULL)

    def write_network(self, state: State, network: str, key: int) -> None:
        if "p" in state:  # Not the state of a run: the paper's tables perturb p.
            self.map.write(np.asarray(state["p"]), network, key)
        else:
            super().write_network(state, network, key)
