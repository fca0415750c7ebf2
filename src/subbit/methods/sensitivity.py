"""Masks by sensitivity, the effect of each weight on the loss: the diagonal of the Fisher information.

Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017 (the diagonal as importance);
Iurada, Ciccone, Tommasi, "Efficient model editing with task-localized sparse fine-tuning" (TaLoS), ICLR 2025 (several
rounds of calibration).

    per-sample   F_i = mean over examples of (d log p(y|x) / dw_i)^2
    batch        the mean over batches of the square of the *mean* gradient: simpler, but a different quantity,
                 since gradients of one batch cancel before they are squared

The label y is the example's own (the "empirical" Fisher), or one drawn from the model's p(y|x) (the Fisher itself).
Per-example gradients use batches of one: on a CPU this is as fast per example as large batches, and it works for every
module, whereas vectorised per-sample gradients do not support data-dependent control flow.

Several rounds of calibration narrow the choice: round r of R keeps the share target^((r + 1) / R), and dropped weights
are multiplied by `damping` in the forward passes of later rounds, so that the next sensitivities are those of a network
that relies on the remaining places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.randomness import derive_key, numpy_generator, torch_generator
from subbit.core.registry import register
from subbit.core.values import require
from subbit.data.examples import Examples
from subbit.local.training import TrainingError
from subbit.methods.gradmask_masks import Kept, Scene, Source, keep_exactly, places_of_share
from subbit.objectives.classes import Classification
from subbit.objectives.objective import finite, logits_of


@register("gradient-mask", "least-sensitive")
@dataclass(frozen=True)
class LeastSensitive:
    name: ClassVar[str] = "least-sensitive"
    follows: ClassVar[Source] = "examples"
    largest: ClassVar[bool] = False
    fisher: Literal["per-sample", "batch"] = "per-sample"
    fisher_labels: Literal["true", "model"] = "true"
    calibration_examples: int | None = 128
    """Examples from which a client measures sensitivities, drawn anew in each calibration round; none: all its
    examples."""
    calibration_rounds: int = 1
    damping: float = 0.1
    """With several calibration rounds: factor on the weights already dropped."""

    def __post_init__(self) -> None:
        examples, rounds = self.calibration_examples, self.calibration_rounds
        require(examples is None or examples >= 1, f"calibration_examples={examples}: needs 1 or more")
        require(rounds >= 1, f"calibration_rounds={rounds}: needs at least 1")
        require(0 <= self.damping <= 1, f"damping={self.damping}: needs a number between 0 and 1")

    def count_after(self, size: int, target: float, done: int) -> int:
        """How many of `size` places remain after `done` rounds.

        >>> [LeastSensitive(calibration_rounds=2).count_after(100, 0.25, done) for done in (0, 1, 2)]
        [100, 50, 25]
        """
        rounds = self.calibration_rounds
        return places_of_share(size, target if done == rounds else target ** (done / rounds))

    def choose(self, scene: Scene) -> Kept:
        """The places of smallest (or largest) sensitivity on this data, after all calibration rounds."""
        kept = np.ones(scene.weights.size, dtype=np.bool_)
        for number in range(self.calibration_rounds):
            scores = self.measure(replace(scene, key=derive_key(scene.key, "calibration", number)), kept)
            kept = self.narrowed(kept, scores, scene.share, number + 1)
        return kept

    def narrowed(self, kept: Kept, scores: NDArray[Any], target: float, done: int) -> Kept:
        """The places that remain after `done` rounds."""
        return keep_exactly(scores, self.count_after(kept.size, target, done), self.largest, kept)

    def measure(self, scene: Scene, kept: Kept) -> NDArray[np.float64]:
        """The sensitivity of each weight, with the dropped ones damped."""
        flat, data, weights = scene.flat, scene.data, torch.from_numpy(scene.weights)
        if data is None:
            raise TypeError("sensitivities are measured on examples")
        flat.attach()
        flat.weights.copy_(weights * torch.where(torch.from_numpy(kept), 1.0, self.damping))
        flat.evaluation_mode()
        order = numpy_generator(derive_key(scene.key, "examples")).permutation(len(data))[: self.calibration_examples]
        size = 1 if self.fisher == "per-sample" else scene.batch_size
        pieces = [order[start : start + size] for start in range(0, len(order), size)]
        generator = torch_generator(derive_key(scene.key, "labels"))
        squares = torch.zeros(weights.numel(), dtype=torch.float64)
        for piece in pieces:
            flat.zero_gradient()
            self._backward(scene, data.batch(piece).to(flat.device), generator)
            # In float64: the square of a gradient of 1e-23 is 0 in float32 and would tie with that of a dead weight.
            gradient = flat.gradient.cpu().double()
            squares.addcmul_(gradient, gradient)
        if not bool(torch.isfinite(squares).all()):
            raise TrainingError("a gradient in calibration is not a finite number: no sensitivity can be had from it")
        return (squares / max(1, len(pieces))).numpy()

    def _backward(self, scene: Scene, batch: Examples, generator: torch.Generator) -> None:
        """Leaves the negative gradient of the mean log p(y|x) in `flat.gradient`; the sign vanishes when squared."""
        objective = scene.objective
        outputs = objective.outputs(scene.flat.module, batch)
        if not finite(outputs):
            raise TrainingError("an output of the network in calibration is not a finite number")
        if self.fisher_labels == "model" and isinstance(objective, Classification):
            chances = logits_of(outputs).detach().softmax(dim=1)
            drawn = torch.multinomial(chances.cpu(), 1, generator=generator).squeeze(1)
            batch = replace(batch, labels=drawn.to(batch.labels.device))
        objective.loss(outputs, batch).backward()  # type: ignore[no-untyped-call]


@register("gradient-mask", "most-sensitive")
@dataclass(frozen=True)
class MostSensitive(LeastSensitive):
    name: ClassVar[str] = "most-sensitive"
    largest: ClassVar[bool] = True
