"""What a run's summary says about privacy: what was asked, and what the steps that were taken amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from subbit.privacy.budget import composed_epsilon
from subbit.privacy.mechanism import GaussianMechanism
from subbit.privacy.sampling import Sampling


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee of a run under differential privacy. All numbers are those of the client they are worst for."""

    guarantee: str
    """In words."""
    epsilon: float
    """For each example over the whole run: what was asked for, or, where that was per step, what was spent."""
    epsilon_spent: float
    """What the steps that were taken amount to."""
    delta: float
    """The chance with which the guarantee may fail."""
    noise_multiplier: float
    """The smallest of any client: noise over clipping norm."""
    largest_noise_multiplier: float
    """The largest of any client."""


def privacy_report(
    mechanism: GaussianMechanism, examples: Mapping[int, int], turns: Mapping[int, int]
) -> PrivacyReport:
    """`examples` and `turns` of each client that took part. All numbers are those of the client they are worst for."""
    privacy, sigmas, spent = mechanism.privacy, [], []
    # Clients alike in both are counted once: accountants are slow.
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
