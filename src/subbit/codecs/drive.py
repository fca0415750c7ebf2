"""DRIVE: one bit per value.

Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, "DRIVE: One-bit Distributed Mean Estimation",
NeurIPS 2021. For each block x: y = R x with a random rotation R, c = sign(y), S = |x|^2 / |y|_1, estimate = R' (S c).
The estimate is unbiased over R, so each sender needs its own key for the errors to average out. The normalised squared
error is pi / 2 - 1 = 0.571. The estimate equals that of EDEN at one bit, whose centroids are +-0.798 instead of +-1;
only the scale on the wire differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_vector
from subbit.codecs.rotated import RotatedQuantiser

SIGNS = np.array([-1, 1], np.float32)
QUANTISER = RotatedQuantiser(bits=1, fraction=0.0, coarse=SIGNS, fine=SIGNS)
NEAREST = replace(QUANTISER, nearest=True)


@register_codec
@dataclass(frozen=True)
class Drive(Codec[Vector]):
    name = "drive"
    number = 51
    kind = Kind.VECTOR
    exact = False
    summary = "rotation and signs, unbiased, one bit a value"

    nearest: bool = field(default=False, repr=False)
    """Use the scale with the smallest error, which is biased. Affects only the sender, so it is not part of the name.
    """

    def contractive(self) -> Drive:
        return replace(self, nearest=True)

    def fixed_length(self, size: int) -> int:
        return QUANTISER.fixed_length(size)

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        return (NEAREST if self.nearest else QUANTISER).encode(check_vector(payload, shared), shared.key)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        return QUANTISER.decode(data, shared)
