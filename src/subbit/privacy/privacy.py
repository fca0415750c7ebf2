"""Differential privacy as an option of local training: noise on the clients' gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from subbit.core.registry import make_registry, register
from subbit.core.values import require
from subbit.privacy.budget import exact_delta, literal_multiplier, noise_multiplier, require_opacus
from subbit.privacy.sampling import Sampling

make_registry("privacy")
LARGEST_EPSILON = 100.0  # e^100 is no protection, and the search for such a sigma may not terminate.


@register("privacy", "none")
@dataclass(frozen=True)
class NoPrivacy:
    """No noise."""

    name: ClassVar[str] = "none"


@register("privacy", "run")
@dataclass(frozen=True)
class Privacy:
    """Epsilon and delta hold for a client's whole run."""

    name: ClassVar[str] = "run"
    epsilon: float = 5.0
    delta: float = 1e-3
    max_gradient_norm: float = 1.0
    """The gradient of each example is clipped to this norm; the noise is proportional to it."""
    accountant: Literal["rdp", "prv"] = "rdp"
    """How steps are composed. `prv` needs less noise but more time."""
    noise_source: Literal["seed", "system"] = "seed"
    """Source of noise and batches. `seed` is reproducible, also for anyone who knows the seed; `system` uses the
    operating system's randomness."""

    def __post_init__(self) -> None:
        require(
            0 < self.epsilon <= LARGEST_EPSILON,
            f"epsilon={self.epsilon}: needs a number above 0, at most {LARGEST_EPSILON:g}",
        )
        require(0 < self.delta < 1, f"delta={self.delta}: needs a number between 0 and 1")
        bound = self.max_gradient_norm
        require(0 < bound < np.inf, f"max_gradient_norm={bound}: needs a number above 0")
        require_opacus()

    def noise_multiplier(self, sampling: Sampling, epochs: int) -> float:
        """sigma for a client that may train for this many epochs."""
        return noise_multiplier(self.epsilon, self.delta, sampling.rate, epochs * sampling.steps, self.accountant)


@register("privacy", "per-step")
@dataclass(frozen=True)
class PrivacyPerStep(Privacy):
    """The classical sigma for a single step, not composed; the summary reports the resulting epsilon."""

    name: ClassVar[str] = "per-step"

    def __post_init__(self) -> None:
        super().__post_init__()
        # The classical sigma is proven for epsilon < 1, and holds slightly beyond.
        true_delta = exact_delta(literal_multiplier(self.epsilon, self.delta), self.epsilon)
        require(
            true_delta <= self.delta,
            f"epsilon={self.epsilon}: sqrt(2 ln(1.25 / delta)) / epsilon is too little for so large an epsilon, "
            f"even for one step: delta would be {true_delta:.2g} and not {self.delta:g}",
        )

    def noise_multiplier(self, sampling: Sampling, epochs: int) -> float:
        return literal_multiplier(self.epsilon, self.delta)
