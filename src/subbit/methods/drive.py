"""DRIVE: FedAvg whose changes go up as the signs of a random rotation, one bit a value.

Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher: "DRIVE: One-bit Distributed Mean Estimation",
NeurIPS 2021.

`fedavg` with `codec=drive`, under the name that a comparison uses; the algorithm is in `subbit.codecs.drive`. Unbiased,
each client and round with a rotation of its own: no error feedback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from subbit.methods.weight_parameters import WeightParameters
from subbit.methods.weights import WeightMethod


@dataclass(frozen=True)
class DriveParameters(WeightParameters):
    codec: Literal["drive"] = "drive"


class Drive(WeightMethod[DriveParameters]):
    name = "drive"
    title = "DRIVE: FedAvg with one-bit changes"
    paper = "baseline"
    citation = "Vargaftik et al., DRIVE: One-bit Distributed Mean Estimation, NeurIPS 2021"
    sends_up = "change of the trained weights, one bit a value"
    sends_down = "trained weights, float32, or their compressed change"
    Parameters = DriveParameters
    presets: ClassVar = {
        "default": {},
        "paper": {},
    }
