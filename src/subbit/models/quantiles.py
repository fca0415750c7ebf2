"""Distributions as tables of quantiles: an integer selects the entry, so that every machine draws the same value.

Entries are rounded coarsely enough to hide last-digit differences between math libraries.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

NORMAL_LEVELS = 4096
BETA_LEVELS = 1024
SIXTEEN_BITS = 65536


@cache
def normal_table() -> NDArray[np.float32]:
    """4096 quantiles of N(0, 1), scaled to mean square 1, as multiples of 2^-16."""
    quantiles = [NormalDist().inv_cdf((level + 0.5) / NORMAL_LEVELS) for level in range(NORMAL_LEVELS)]
    size = sqrt(sum(quantile**2 for quantile in quantiles) / NORMAL_LEVELS)
    return np.array([round(quantile / size * SIXTEEN_BITS) / SIXTEEN_BITS for quantile in quantiles], dtype=np.float32)


@lru_cache(maxsize=4)
def beta_table(shape: float) -> NDArray[np.uint32]:
    """1024 quantiles of Beta(shape, shape) in units of 2^-32, to 16 significant bits, none 0.

    Below the median, x = t^(1 / power) with power = min(shape, 1) turns the density into x^(shape - power) (1 -
    x)^(shape - 1) dt, which is bounded; above it the distribution is mirrored.
    """
    power = min(shape, 1.0)
    below = np.linspace(0.0, 0.5**power, 1 << 14) ** (1 / power)
    density = below ** (shape - power) * (1 - below) ** (shape - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    half = BETA_LEVELS // 2
    quantiles = np.interp((np.arange(half) + 0.5) / half, mass / mass[-1], below)
    mantissas, exponents = np.frexp(quantiles)
    rounded = np.ldexp(np.rint(mantissas * SIXTEEN_BITS), exponents - 16)
    lower = np.maximum(1, rounded * 2.0**32).astype(np.uint32)
    return np.concatenate([lower, (np.uint32(0xFFFFFFFF) - lower)[::-1]])
