"""DeepReduce on masks: the ones of a sampled mask go up in a Bloom filter, and false positives become ones.

Xu, Kostopoulou, Dutta, Li, Ntoulas, Kalnis: "DeepReduce: A Sparse-tensor Communication Framework for Federated Deep
Learning", NeurIPS 2021 (first as Kostopoulou et al., 2021), policy P0, as paper 000 applies it to FedPM.

    down   theta, as in FedPM
    client trains and draws m_k as in FedPM
    up     a Bloom filter of {i: m_k(i) = 1}:  m = n log2(1/f) / ln 2 bits for n ones and a false-positive rate f
    server m'_k = every place that the filter contains: all ones of m_k, and a share f of its zeros; then as FedPM

DeepReduce was made for sparse gradients: its own f = 0.1 n / d is small only while n is. Of a mask half of whose bits
are ones it makes 3.1 bits per parameter. The tables of paper 000 print 1.1, and for half ones that buys
f = 2^(-1.1 ln 2 / 0.5) = 0.35: a sixth of all bits arrives wrong, each of them as a one. The observation `false_flips`
counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from subbit.codecs import Codec, make_codec
from subbit.codecs.base import Bits
from subbit.methods.base import Part
from subbit.methods.fedpm import FedPM
from subbit.methods.masks import MaskParameters


@dataclass(frozen=True)
class DeepReduceParameters(MaskParameters):
    false_positive_rate: float | None = None
    """Of the filter; none, and no target either: 0.1 times the share of ones, DeepReduce's own."""
    target_bpp: float | None = None
    """Bits per parameter of the filter: its false-positive rate is what they buy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.filter()  # The codec knows its ranges: what it refuses is refused before anything runs.

    def filter(self) -> Codec[Bits]:
        return make_codec("bloom", false_positive_rate=self.false_positive_rate, target_bpp=self.target_bpp)


class DeepReduce(FedPM):
    """FedPM with a Bloom filter in the place of the entropy code."""

    name = "deepreduce"
    title = "DeepReduce: stochastic masks, their ones in a Bloom filter"
    paper = "000 (baseline)"
    citation = (
        "Xu et al., DeepReduce: A Sparse-tensor Communication Framework for Federated Deep Learning, NeurIPS 2021"
    )
    sends_up = "a Bloom filter of the ones of one sampled mask (policy P0: false positives become ones)"
    Parameters = DeepReduceParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"target_bpp": 1.1, "theta": "float32", "evaluation": "sampled"},
    }

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("mask", self.parameters.filter(), self.size),)
