"""The privacy section of a run's summary: the requested guarantee, and what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from subbit.privacy.budget import composed_epsilon
from subbit.privacy.mechanism import GaussianMechanism
from subbit.privacy.sampling import Sampling


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee of a run with differential privacy. Each number is that of the worst-off client."""

    guarantee: str
    """The guarantee in words."""
    epsilon: float
    """Epsilon for each example over the whole run: the requested one or, if that was per step, the one spent."""
    epsilon_spent: float
    """Epsilon of the steps actually taken."""
    delta: float
    """Probability with which the guarantee may fail."""
    noise_multiplier: float
    """Smallest noise multiplier of any client: noise divided by clipping norm."""
    largest_noise_multiplier: float
    """Largest noise multiplier of any client."""


def privacy_report(
    mechanism: GaussianMechanism, examples: Mapping[int, int], turns: Mapping[int, int]
) -> PrivacyReport:
    """`examples` and `turns` of each participating client. Each number is that of the worst-off client."""
    privacy, sigmas, spent = mechanism.privacy, [], []
    # Accountants are slow, so clients with equal examples and turns are computed once.
    for size, taken in sorted({(examples[client], taken) for client, taken in turns.items()}):
        sampling = Sampling(size, mechanism.batch_size)
        steps = taken * mechanism.epochs * sampling.steps
        sigmas.append(mechanism.noise_multiplier(size))
        spent.append(composed_epsilon(sigmas[-1], privacy.delta, sampling.rate, steps, privacy.accountant))
    worst, delta = max(spent, default=0.0), privacy.delta
    asked = f"epsilon {privacy.epsilon:g}, delta {delta:g}"
    if privacy.name == "run":
        guarantee = f"{asked} for each example over the whole run"
    else:
        guarantee = f"{asked} per step, not composed: epsilon {worst:.4g} for each example over the whole run"
    if privacy.noise_source == "seed":
        guarantee += ", towards those who do not know the seed"
    return PrivacyReport(
        guarantee=guarantee,
        epsilon=privacy.epsilon if privacy.name == "run" else worst,
        epsilon_spent=worst,
        delta=delta,
        noise_multiplier=min(sigmas, default=0.0),
        largest_noise_multiplier=max(sigmas, default=0.0),
    )
