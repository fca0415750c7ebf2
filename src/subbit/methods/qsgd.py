"""QSGD: FedAvg whose changes go up stochastically rounded to a few levels of their norm.

Alistarh, Grubic, Li, Tomioka, Vojnovic: "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NIPS 2017.

`fedavg` with `codec=qsgd`, under the name that a comparison uses; the algorithm is in `subbit.codecs.qsgd`. Unbiased,
each client and round with draws of its own: no error feedback.

`levels=sqrt` is the paper's dense regime, about two bits a value. The comparisons of mask methods take 2 levels
(`preset=paper`): far fewer bits, and an error several times as long as the change, which only a mean over many clients
and a small learning rate survive. Their bits are a bound on an Elias code; ours are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod


@dataclass(frozen=True)
class QsgdParameters(WeightParameters):
    codec: Literal["qsgd"] = "qsgd"
    levels: int | Literal["sqrt"] = "sqrt"


class Qsgd(WeightMethod[QsgdParameters]):
    name = "qsgd"
    title = "QSGD: FedAvg with stochastically rounded changes"
    paper = "baseline"
    citation = "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NIPS 2017"
    sends_up = "change of the trained weights as entropy-coded levels"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = QsgdParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"levels": 2},
    }
