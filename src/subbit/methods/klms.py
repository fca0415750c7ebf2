"""Federated KLMS: a mask drawn from the client's probabilities for little more than their divergence from the server's.

Isik, Pase, Gunduz, Koyejo, Weissman, Zorzi: "Adaptive Compression in Federated Learning via Side Information", AISTATS
2024.

    down   theta, as in FedPM: the prior p, which both sides know
    client trains scores as in FedPM: the posterior q = sigmoid(s)
    up     for each block of places, the index c of one of 2^b candidates x_c ~ p that both sides can draw, chosen
           with a probability proportional to q(x_c) / p(x_c); blocks grow until KL(q || p) of one exceeds `rate` bits
    server m_k = the chosen candidates, nearly a sample of q; the rest as in FedPM

FedPM draws a mask and pays for its entropy. Here the coder itself draws (`subbit.codecs.klms`): what is sent is a
distribution, and what a client did not learn costs nothing. The observation `divergence` is
what a perfect coder would pay, in bits per parameter; what the uplink has above it is the price of the blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subbit.codecs import Codec, make_codec
from subbit.codecs.base import Bits
from subbit.codecs.sampler import Thresholds
from subbit.data.examples import Examples
from subbit.methods.base import Part, Turn, Update
from subbit.methods.deltamask import bernoulli_divergence
from subbit.methods.fedpm import FedPM
from subbit.methods.masks import MaskParameters
from subbit.methods.scores import FULL


@dataclass(frozen=True)
class KlmsParameters(MaskParameters):
    rate: float = 3.0
    """Divergence of a block in bits. Well below `candidate_bits`, or no candidate looks like the posterior."""
    candidate_bits: int = 8
    """A block has 2^candidate_bits candidates, each of which the client draws: time and faith against bits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.coder()  # The codec knows its ranges: what it refuses is refused before anything runs.

    def coder(self) -> Codec[Bits]:
        return make_codec("klms", rate=self.rate, candidate_bits=self.candidate_bits)


class Klms(FedPM):
    """FedPM with relative-entropy coding in the place of a draw and its entropy code."""

    name = "klms"
    title = "KLMS: stochastic masks, drawn by the coder from shared candidates"
    paper = "000 (related)"
    citation = "Isik et al., Adaptive Compression in Federated Learning via Side Information, AISTATS 2024"
    sends_up = "indices of shared candidate masks, one per block of equal divergence"
    Parameters = KlmsParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"epochs": 3, "rate": 2.0, "candidate_bits": 2, "theta": "float32", "evaluation": "sampled"},
    }

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("mask", self.parameters.coder(), self.size),)

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        trained, loss, after, before = self.train_scores(view, data, turn)
        divergence = bernoulli_divergence(after.double(), before.double()).mean().item() / math.log(2)
        posterior = (trained / FULL).astype(np.float32)
        return Update({"mask": posterior}, len(data), {"loss": loss, "divergence": divergence})
