"""EDEN: any number of bits per value, unbiased for any distribution of the vector.

Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, "EDEN: Communication-Efficient and Robust
Distributed Mean Estimation for Federated Learning", ICML 2022. For each block x of length n (see
`subbit.codecs.rotation`):

    y = R x                                     random rotation, known to both sides
    c = Q(sqrt(n) y / |x|)                      Lloyd-Max quantiser of the standard normal distribution, b bits a value
    S = |x|^2 / <c, y>                          one float32
    estimate = R' (S c)

This S makes <estimate, x> = |x|^2 exactly, and since R has no preferred direction the rest of the error averages to
zero over R. Senders must therefore use different rotations: give each its own `Shared.key`. The normalised squared
error is |c|^2 S^2 / |x|^2 - 1: pi / 2 - 1 = 0.571 at one bit, 0.133 at two.

For a fractional number of bits, the first values of the rotated block use the finer of the two neighbouring quantisers.
With zero bits nothing is sent and c = 0, so below one bit this is sparsification. The paper chooses these positions at
random. The rotation has already made positions exchangeable, so a fixed choice is as good, and S corrects for what is
left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_vector
from subbit.codecs.rotated import RotatedQuantiser
from subbit.core.errors import ConfigError

MOST_BITS = 8
GRID = 2.0**16
"""Centroids are multiples of 2^-16, so that last-bit differences in erf between machines do not change the bytes."""


@register_codec
@dataclass(frozen=True)
class Eden(Codec[Vector]):
    """`bits` per value, more than 0 and up to 8, fractions allowed."""

    name = "eden"
    number = 50
    kind = Kind.VECTOR
    exact = False
    summary = "rotation and normal quantiser, unbiased; bits=0.1 ... 8 a value"
    most_bits = MOST_BITS

    bits: float = 1.0
    nearest: bool = field(default=False, repr=False)
    """Use the scale with the smallest error, which is biased. Affects only the sender, so it is not part of the name.
    """

    def __post_init__(self) -> None:
        if not 0 < self.bits <= MOST_BITS:
            raise ConfigError(f"bits is {self.bits}, EDEN takes more than 0 and at most {MOST_BITS}")

    def contractive(self) -> Eden:
        """The error of unbiased EDEN is w |x|^2 with w = (pi / 2) / bits - 1 up to one bit: more than |x|^2 below pi /
        4 = 0.785 bits.
        """
        return replace(self, nearest=True)

    def fixed_length(self, size: int) -> int:
        return self._quantiser().fixed_length(size)

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        return self._quantiser().encode(check_vector(payload, shared), shared.key)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        return self._quantiser().decode(data, shared)

    def _quantiser(self) -> RotatedQuantiser:
        whole = math.floor(self.bits)
        coarse, fine = normal_centroids(whole), normal_centroids(math.ceil(self.bits))
        return RotatedQuantiser(whole, self.bits - whole, coarse, fine, self.nearest)


@lru_cache(maxsize=MOST_BITS + 1)
def normal_centroids(bits: int) -> Vector:
    """The 2^bits values c that minimise E min_i (z - c_i)^2 for a standard normal z (Lloyd 1957, Max 1960).

    Half the gradient is c_i P_i - M_i, where cell i lies between the midpoints b of neighbouring centroids, P_i =
    Phi(b_i) - Phi(b_i-1) and M_i = phi(b_i-1) - phi(b_i). Lloyd's step divides it by P and converges slowly. Newton's
    step divides by the Hessian and diverges when far away. The matrix Hessian + damping P moves from the first to the
    second. The initial centroids have the density phi^(1/3), which is optimal for many centroids.
    """
    count = 1 << bits
    normal, start = NormalDist(), NormalDist(sigma=math.sqrt(3))
    centroids = np.array([start.inv_cdf((place + 0.5) / count) for place in range(count)])
    for iteration in range(40):
        middles = ((centroids[1:] + centroids[:-1]) / 2).tolist()
        density = np.array([0.0, *(normal.pdf(middle) for middle in middles), 0.0])
        mass = np.diff([0.0, *(normal.cdf(middle) for middle in middles), 1.0])
        coupling = np.diff(centroids) / 4 * density[1:-1]
        hessian = np.diag(mass * (1 + 2.0**-iteration)) - np.diag(coupling, 1) - np.diag(coupling, -1)
        hessian -= np.diag(np.append(coupling, 0) + np.append(0, coupling))
        centroids -= np.linalg.solve(hessian, centroids * mass + np.diff(density))
        centroids = (centroids - centroids[::-1]) / 2
    return (np.round(centroids * GRID) / GRID).astype(np.float32)
