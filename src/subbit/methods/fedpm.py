"""FedPM: federated learning of a probability mask over frozen weights.

Isik, Pase, Gunduz, Weissman, Zorzi: "Sparse Random Networks for Communication-Efficient Federated Learning", ICLR 2023.

    down   theta, the chance of a one at each place
    client s = logit(theta); every step draws m ~ Bern(sigmoid(s)) and descends on L(w0 * m);
           then one m_k ~ Bern(sigmoid(s))
    up     m_k, entropy-coded
    server M = sum of m_k; theta = mode or mean of Beta(1 + M, 1 + K - M)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from subbit.aggregate import MaskCounts
from subbit.codecs import make_codec
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.data.examples import Examples
from subbit.methods.base import Part, Payloads, Turn, Update
from subbit.methods.masks import MaskMethod, MaskParameters
from subbit.randomness import derive_key


@dataclass(frozen=True)
class FedPMParameters(MaskParameters):
    codec: Literal["mask", "range", "packed", "range-prior"] = "mask"
    """`mask` takes the smallest, `range` is the arithmetic code of the paper, `packed` costs one bit per place."""


class FedPM(MaskMethod[FedPMParameters]):
    name = "fedpm"
    title = "FedPM: stochastic masks, sent whole"
    paper = "000 (baseline)"
    citation = "Isik et al., Sparse Random Networks for Communication-Efficient Federated Learning, ICLR 2023"
    sends_up = "one sampled mask, entropy-coded"
    sends_down = "mask probabilities, as entropy-coded counts (paper: float32)"
    Parameters: ClassVar[type[Any]] = FedPMParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"epochs": 3, "batch_size": 128, "codec": "range", "theta": "float32", "evaluation": "sampled"},
    }

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("mask", make_codec(self.parameters.codec), self.size),)

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        trained, loss, _, _ = self.train_scores(view, data, turn)
        mask = sample_bits(trained, derive_key(self.task.seed, "client-mask", turn.round_number, turn.client))
        return Update({"mask": mask}, len(data), {"loss": loss})

    def accumulate(
        self, accumulator: MaskCounts, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.add(payloads["mask"])
