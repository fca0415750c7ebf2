"""Converts a privacy budget to noise, and noise to the budget spent.

A step adds Gaussian noise with standard deviation sigma C to a sum over a batch. One example changes the sum by at most
C and is in the batch with probability q. Opacus bounds epsilon after many such steps, with

    rdp   Renyi differential privacy: Mironov, Talwar, Zhang, "Renyi Differential Privacy of the Sampled Gaussian
          Mechanism", 2019; takes seconds per client size
    prv   the distribution of the privacy loss: Gopi, Lee, Wutschitz, "Numerical Composition of Differential
          Privacy", NeurIPS 2021; less noise for the same budget, but up to minutes per client size
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

from subbit.core.errors import ConfigError

Accountant = Literal["rdp", "prv"]

ORDERS = (1.25, 1.5, 1.75, 2.25, 2.5, 3.5, 4.5, *range(2, 65), 80, 96, 128, 192, 256, 512)
"""Orders of Renyi differential privacy: any choice gives a bound; non-integer orders are slow."""


def require_opacus() -> None:
    if find_spec("opacus") is None:
        raise ConfigError("privacy needs Opacus to count its budget: pip install 'subbit[privacy]'")


@lru_cache(maxsize=4096)
def noise_multiplier(epsilon: float, delta: float, rate: float, steps: int, accountant: Accountant) -> float:
    """The smallest sigma, to within a hundredth of epsilon, with which this many steps stay within the budget."""
    from opacus.accountants.utils import get_noise_multiplier

    try:
        with _quiet():
            sigma = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant=accountant,
                epsilon_tolerance=min(0.01, epsilon / 100),
                **_options(accountant),
            )
    except ValueError as error:
        raise ConfigError(f"epsilon={epsilon}, delta={delta} over {steps} steps: {error}") from None
    return float(sigma)


@lru_cache(maxsize=4096)
def composed_epsilon(sigma: float, delta: float, rate: float, steps: int, accountant: Accountant) -> float:
    """The epsilon of this many steps with that noise."""
    if steps == 0:
        return 0.0
    from opacus.accountants import create_accountant

    counting = create_accountant(accountant)
    counting.history = [(sigma, rate, steps)]
    with _quiet():
        return float(counting.get_epsilon(delta=delta, **_options(accountant)))


def literal_multiplier(epsilon: float, delta: float) -> float:
    """sigma = sqrt(2 ln(1.25 / delta)) / epsilon: the classical Gaussian mechanism, for one step without subsampling.

    Its proof needs epsilon < 1 (Dwork, Roth, "The Algorithmic Foundations of Differential Privacy", 2014, theorem A.1).

    >>> round(literal_multiplier(5, 1e-3), 3)
    0.755
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def exact_delta(sigma: float, epsilon: float) -> float:
    """The exact delta of one step without subsampling: Balle, Wang, "Improving the Gaussian Mechanism", ICML 2018."""

    def normal(value: float) -> float:
        return math.erfc(-value / math.sqrt(2)) / 2

    near, far = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return normal(near) - math.exp(epsilon) * normal(far)


def _options(accountant: Accountant) -> dict[str, Any]:
    return {"alphas": list(ORDERS)} if accountant == "rdp" else {}


class _quiet(warnings.catch_warnings):
    """Suppress two warnings of Opacus: if the best order is the first or last one, and a division by zero at q = 1.

    Both bounds are valid nevertheless.
    """

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
