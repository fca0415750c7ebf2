"""The keys of differential privacy, for methods whose clients train weights by gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from subbit.config.values import require
from subbit.methods.local import LocalTraining
from subbit.privacy.budget import exact_delta, literal_multiplier, noise_multiplier, require_opacus
from subbit.privacy.sampling import Sampling, system_key

LARGEST_EPSILON = 100.0  # e^100 is no protection, and searching for such a sigma may never end.


@dataclass(frozen=True)
class PrivateTraining(LocalTraining):
    privacy: Literal["none", "run", "per-step"] = "none"
    """Noise on the gradients of clients. `run`: epsilon and delta hold for a client's whole run. `per-step`: the
    classical sigma for a single step, not composed; the summary says what it amounts to."""
    epsilon: float = 5.0
    delta: float = 1e-3
    max_gradient_norm: float = 1.0
    """The gradient of each example is scaled down to this norm, and the noise is in proportion to it."""
    accountant: Literal["rdp", "prv"] = "rdp"
    """How steps are added up. `prv` needs less noise and more time."""
    noise_source: Literal["seed", "system"] = "seed"
    """What noise and batches are drawn from. `seed` can be repeated, also by everyone who knows the seed; `system` asks
    the operating system."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.epsilon <= LARGEST_EPSILON,
            f"epsilon={self.epsilon}: needs a number above 0, at most {LARGEST_EPSILON:g}",
        )
        require(0 < self.delta < 1, f"delta={self.delta}: needs a number between 0 and 1")
        bound = self.max_gradient_norm
        require(0 < bound < np.inf, f"max_gradient_norm={bound}: needs a number above 0")
        if self.privacy != "none":
            require_opacus()
        if self.privacy == "per-step":
            # The classical sigma is proven for epsilon < 1, and holds for somewhat more.
            true_delta = exact_delta(literal_multiplier(self.epsilon, self.delta), self.epsilon)
            require(
                true_delta <= self.delta,
                f"epsilon={self.epsilon}: sqrt(2 ln(1.25 / delta)) / epsilon is too little for so large an epsilon, "
                f"even for one step: delta would be {true_delta:.2g} and not {self.delta:g}",
            )

    def draw_batches(self, count: int, key: int) -> Iterator[NDArray[np.int64]]:
        if self.privacy == "none":
            return super().draw_batches(count, key)
        # Who knows which examples are in a batch is not protected by the others that might have been.
        return Sampling(count, self.batch_size).batches(key if self.noise_source == "seed" else system_key())

    def noise_multiplier(self, examples: int, rounds: int) -> float:
        """sigma of a client with so many examples, who may take part in every round."""
        if self.privacy == "per-step":
            return literal_multiplier(self.epsilon, self.delta)
        sampling = Sampling(examples, self.batch_size)
        steps = rounds * self.epochs * sampling.steps
        return noise_multiplier(self.epsilon, self.delta, sampling.rate, steps, self.accountant)
