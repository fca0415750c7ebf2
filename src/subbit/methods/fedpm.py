"""FedPM: federated learning of a probability mask over frozen weights; and variants that differ in one component.

Isik, Pase, Gunduz, Weissman, Zorzi: "Sparse Random Networks for Communication-Efficient Federated Learning", ICLR 2023.

    down   theta, the probability of a one at each place
    client s = logit(theta); every step draws m ~ Bern(sigmoid(s)) and descends on L(w0 * m);
           then one m_k ~ Bern(sigmoid(s))
    up     m_k, entropy-coded
    server M = sum of m_k; theta = mode or mean of Beta(1 + M, 1 + K - M)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from subbit.codecs import Codec, Kind
from subbit.codecs.klms import Klms
from subbit.codecs.sampler import Thresholds
from subbit.codecs.smallest import Mask
from subbit.core.pieces import choice, only_with
from subbit.core.randomness import derive_key
from subbit.exchange.by_codec import bits_or_vectors, follows_from_codec, loses_changes
from subbit.exchange.posterior import BitsAggregate, BitsDown, BitsExchange, BitsUp, Moved
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import FULL
from subbit.maps.masks import MaskMap, bernoulli_divergence
from subbit.maps.weights import MapChoice
from subbit.methods.method import Method
from subbit.methods.variants import Variant
from subbit.models.task import Task, Turn


def carries_masks(codec: Any) -> bool:
    return codec.kind in (Kind.BITS, Kind.VECTOR)


@dataclass(frozen=True)
class MaskUp(BitsUp):
    """Uploads one mask, drawn from the learned probabilities."""

    codec: Codec[Any] = choice("codec", Mask(), accepts=carries_masks)
    """`mask` takes the smallest code, `range` is the paper's arithmetic code, `packed` costs one bit per place."""
    error_feedback: bool | Literal["auto"] = only_with("codec", loses_changes, "auto")
    """Where changes of scores are sent: the client adds what was lost to its next change; `auto`: for biased codecs."""

    def say(self, exchange: BitsExchange, view: Thresholds, moved: Moved, turn: Turn) -> tuple[Any, dict[str, float]]:
        if isinstance(self.codec, Klms):
            before, after = moved.scores_at(slice(None))
            divergence = bernoulli_divergence(after, before).mean().item() / math.log(2)
            return (moved.thresholds / FULL).astype(np.float32), {"divergence": divergence}
        key = derive_key(exchange.task.seed, "client-mask", turn.round_number, turn.client)
        return exchange.map.draw(moved.thresholds, key), {}


@dataclass(frozen=True)
class FedPMParameters:
    map: MapChoice = MapChoice(MaskMap())
    local: Local = Local(learning_rate=0.1)
    up: MaskUp = MaskUp()
    down: BitsDown = BitsDown()
    aggregate: BitsAggregate = BitsAggregate()
    implied = staticmethod(follows_from_codec)


class FedPM(Method[FedPMParameters]):
    name = "fedpm"
    title = "FedPM: stochastic masks, sent whole"
    paper = "000 (baseline)"
    citation = "Isik et al., Sparse Random Networks for Communication-Efficient Federated Learning, ICLR 2023"
    sends_up = "one sampled mask, entropy-coded"
    sends_down = "mask probabilities, as entropy-coded counts (paper: float32)"
    Parameters = FedPMParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"epochs": 3, "batch_size": 128, "codec": "range", "down_codec": "dense", "evaluation": "sampled"},
    }

    def __init__(self, parameters: FedPMParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = bits_or_vectors(task, parameters, self.map)


THRESHOLD_MASK = Variant(
    FedPM,
    "threshold-mask",
    title="Threshold mask: deterministic masks, sent whole (FedMask in paper 000)",
    paper="000 (baseline)",
    citation="Li et al., FedMask, SenSys 2021, in the global form of Tsouvalas et al., 2023",
    sends_up="one thresholded mask, entropy-coded (paper: packed, one bit per parameter)",
    words={"map": "threshold"},
    presets={"default": {"clamp": 0.1}, "paper": {"clamp": 0.1, "codec": "packed", "down_codec": "dense"}},
)
"""The baseline that paper 000 calls FedMask: the thresholded mask of Li et al., made global. One mask for all clients,
without that paper's pruning and personal structures.

    client every step descends on L(w0 * [sigmoid(s) >= tau]), straight through to sigmoid(s)
    up     m_k = [sigmoid(s) >= tau], one bit per weight or less
    server theta = mean of m_k, kept away from 0 and 1;  the network is w0 * [theta >= tau]

With tau below every theta (e.g. 0) the mask is all ones until training pushes a theta below tau.

A place on which all clients agree starts its next turn at the clamp and must cross tau within that turn, or nothing is
sent of what was learnt. At FedPM's clamp of 0.01 that takes 46 steps of Adam at 0.1, and paper 000 has 26; hence 0.1.
"""

DEEPREDUCE = Variant(
    FedPM,
    "deepreduce",
    title="DeepReduce: stochastic masks, their ones in a Bloom filter",
    paper="000 (baseline)",
    citation="Xu et al., DeepReduce: A Sparse-tensor Communication Framework for Federated Deep Learning, NeurIPS 2021",
    sends_up="a Bloom filter of the ones of one sampled mask (policy P0: false positives become ones)",
    words={"codec": "bloom"},
    presets={"default": {}, "paper": {"target_bpp": 1.1, "down_codec": "dense", "evaluation": "sampled"}},
)
"""Kostopoulou et al., 2021, with policy P0, as paper 000 applies it to FedPM.

    up     a Bloom filter of {i: m_k(i) = 1}:  m = n log2(1/f) / ln 2 bits for n ones and a false-positive rate f
    server m'_k = every place that the filter contains: all ones of m_k, and a share f of its zeros; then as FedPM

DeepReduce was designed for sparse gradients: its own f = 0.1 n / d is small only if n is. For a mask with half ones it
needs 3.1 bits per parameter. Paper 000 reports 1.1, which for half ones allows only f = 2^(-1.1 ln 2 / 0.5) = 0.35: a
sixth of all bits arrives wrong, each of them as a one. The observation `false_flips` counts them.
"""

KLMS = Variant(
    FedPM,
    "klms",
    title="KLMS: masks drawn by the coder from shared candidates",
    paper="000 (related)",
    citation="Isik et al., Adaptive Compression in Federated Learning via Side Information, AISTATS 2024",
    sends_up="indices of shared candidate masks, one per block of equal divergence",
    words={"codec": "klms"},
    presets={
        "default": {},
        "paper": {"epochs": 3, "rate": 2.0, "candidate_bits": 2, "down_codec": "dense", "evaluation": "sampled"},
    },
)
"""A mask drawn from the client's probabilities, at a cost of little more than their divergence from the server's.

    client trains scores as in FedPM: the posterior q = sigmoid(s); the broadcast is the prior p
    up     for each block of places, the index c of one of 2^b candidates x_c ~ p that both sides can draw, chosen
           with a probability proportional to q(x_c) / p(x_c); blocks grow until KL(q || p) of one exceeds `rate` bits
    server m_k = the chosen candidates, nearly a sample of q; the rest as in FedPM

FedPM draws a mask and sends it at the cost of its entropy. Here the coder draws the mask (`subbit.codecs.klms`), so
places that a client did not change cost nothing. The observation `divergence` is the cost of an ideal coder, in bits
per parameter; the rest of the uplink is the overhead of the blocks.
"""
