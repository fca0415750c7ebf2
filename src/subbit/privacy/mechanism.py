"""A private step of local training: the sum of clipped per-example gradients plus Gaussian noise.

    (sum_i g_i min(1, C / |g_i|) + sigma C N(0, 1)) / (q n)

used as the hook `backward` of `train_locally`. Post-processing (optimiser, weight decay, codecs, error feedback,
aggregation) does not weaken the guarantee.
"""

from __future__ import annotations

import torch

from subbit.core.randomness import derive_key, numpy_generator
from subbit.data.examples import Examples
from subbit.models.task import Task, Turn
from subbit.privacy.per_sample import PerSampleGradients
from subbit.privacy.privacy import Privacy
from subbit.privacy.refusals import refuse_module
from subbit.privacy.sampling import Sampling, system_key


class GaussianMechanism:
    """State shared by the private turns of all clients of a task."""

    def __init__(self, privacy: Privacy, batch_size: int, epochs: int, task: Task) -> None:
        self.privacy, self.batch_size, self.epochs, self.task = privacy, batch_size, epochs, task
        self.gradients = PerSampleGradients(task.flat, task.objective)
        refuse_module(task, self.gradients)

    def noise_multiplier(self, examples: int) -> float:
        """sigma for a client with this many examples, which may participate in every round."""
        epochs = self.task.rounds * self.epochs
        return self.privacy.noise_multiplier(Sampling(examples, self.batch_size), epochs)

    def turn(self, examples: int, turn: Turn) -> PrivateBackward:
        return PrivateBackward(self, examples, turn)


class PrivateBackward:
    """The steps of one turn."""

    def __init__(self, mechanism: GaussianMechanism, examples: int, turn: Turn) -> None:
        privacy = mechanism.privacy
        self.gradients = mechanism.gradients
        self.bound = privacy.max_gradient_norm
        self.deviation = mechanism.noise_multiplier(examples) * self.bound
        self.expected = Sampling(examples, mechanism.batch_size).expected
        self.where = (mechanism.task.seed, "privacy-noise", turn.round_number, turn.client)
        self.repeatable = privacy.noise_source == "seed"
        self.step = 0

    def __call__(self, batch: Examples) -> float:
        gradient = self.gradients.clipped_sum(batch, self.bound).cpu()  # Not every device has float64.
        key = derive_key(*self.where, self.step) if self.repeatable else system_key()
        # In double precision: float32 draws end at less than six standard deviations.
        noise = numpy_generator(key).standard_normal(gradient.numel()) * self.deviation
        torch.add(gradient, torch.from_numpy(noise), out=gradient)
        self.gradients.flat.gradient.copy_(gradient / self.expected)
        self.step += 1
        # The loss is not covered by the budget, so it is neither reported nor able to fail the turn.
        return 0.0
