"""EDEN: FedAvg whose changes go up rotated and quantised, at any number of bits a value.

Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher: "EDEN: Communication-Efficient and Robust
Distributed Mean Estimation for Federated Learning", ICML 2022.

`fedavg` with `codec=eden` and `bits` (1), under the name that a comparison uses; the algorithm is in
`subbit.codecs.eden`. Unbiased, each client and round with a rotation of its own: no error feedback.

Paper 000 prints 0.69 to 0.72 bits per parameter for "1-bit" EDEN, which one bit a value cannot give: `bits=0.7` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod


@dataclass(frozen=True)
class EdenParameters(WeightParameters):
    codec: Literal["eden"] = "eden"


class Eden(WeightMethod[EdenParameters]):
    name = "eden"
    title = "EDEN: FedAvg with rotated, quantised changes"
    paper = "baseline"
    citation = "Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean Estimation, ICML 2022"
    sends_up = "change of the trained weights, about `bits` bits a value"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = EdenParameters
    presets: ClassVar = {
        "default": {},
        "paper": {},
    }
