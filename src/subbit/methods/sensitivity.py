"""How much the loss feels each weight: the diagonal of the Fisher information, and the choice of exactly k places.

Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017 (the diagonal as importance);
Iurada, Ciccone, Tommasi, "Efficient model editing with task-localized sparse fine-tuning" (TaLoS), ICLR 2025 (several
rounds of calibration).

    per-sample   F_i = mean over examples of (d log p(y|x) / dw_i)^2
    batch        the mean over batches of the square of the *mean* gradient: cheaper to write down and another quantity,
                 since gradients of one batch cancel before they are squared

The label y is the example's own (the "empirical" Fisher), or one drawn from the model's p(y|x) (the Fisher itself).
Gradients of single examples come from batches of one: on a CPU as fast per example as large batches, and right for
every module, where vectorised per-sample gradients need modules without conditions on values.

Several rounds of calibration narrow the choice: round r of R keeps the share target^((r + 1) / R), and what has been
dropped is multiplied by `damping` in the forward passes of later rounds, so that the next sensitivities are those of
a network that leans on the places that are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.local import TrainingError
from subbit.models.flat import FlatModel
from subbit.randomness import derive_key, numpy_generator, torch_generator

Scores = NDArray[Any]
Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class Calibration:
    """How sensitivities are measured."""

    fisher: Literal["per-sample", "batch"] = "per-sample"
    labels: Literal["true", "model"] = "true"
    examples: int | None = None
    """At most so many examples, drawn anew in each round of calibration; none: all."""
    batch_size: int = 64
    """For `batch`."""
    rounds: int = 1
    damping: float = 0.1

    def __post_init__(self) -> None:
        require(self.examples is None or self.examples >= 1, f"calibration_examples={self.examples}: needs 1 or more")
        require(self.rounds >= 1, f"calibration_rounds={self.rounds}: needs at least 1")
        require(0 <= self.damping <= 1, f"damping={self.damping}: needs a number between 0 and 1")

    def count_after(self, size: int, target: float, done: int) -> int:
        """How many of `size` places are left after `done` rounds.

        >>> [Calibration(rounds=2).count_after(100, 0.25, done) for done in (0, 1, 2)]
        [100, 50, 25]
        """
        return places_of_share(size, target if done == self.rounds else target ** (done / self.rounds))

    def choose(self, flat: FlatModel, weights: Tensor, data: Examples, target: float, largest: bool, key: int) -> Kept:
        """The places of smallest (or largest) sensitivity on these data, after all rounds."""
        kept = np.ones(weights.numel(), dtype=np.bool_)
        for number in range(self.rounds):
            scores = self.measure(flat, weights, kept, data, derive_key(key, "calibration", number))
            kept = keep_exactly(scores, self.count_after(kept.size, target, number + 1), largest, kept)
        return kept

    def measure(self, flat: FlatModel, weights: Tensor, kept: Kept, data: Examples, key: int) -> NDArray[np.float64]:
        """The sensitivity of each of these weights, those that are not kept being damped."""
        damped = torch.where(torch.from_numpy(kept), 1.0, self.damping)
        flat.attach()
        torch.mul(weights.detach(), damped, out=flat.weights)
        flat.evaluation_mode()
        order = numpy_generator(derive_key(key, "examples")).permutation(len(data))[: self.examples]
        size = 1 if self.fisher == "per-sample" else self.batch_size
        pieces = [order[start : start + size] for start in range(0, len(order), size)]
        generator = torch_generator(derive_key(key, "labels"))
        squares = torch.zeros(weights.numel(), dtype=torch.float64)
        for piece in pieces:
            flat.zero_gradient()
            _backward(flat, data.select(piece), self.labels, generator)
            # In float64: the square of a gradient of 1e-23 is 0 in float32, and would tie with that of a dead weight.
            squares.addcmul_(flat.gradient.double(), flat.gradient.double())
        if not bool(torch.isfinite(squares).all()):
            raise TrainingError("a gradient in calibration is not a finite number: no sensitivity can be had from it")
        return (squares / max(1, len(pieces))).numpy()


def _backward(flat: FlatModel, batch: Examples, source: Literal["true", "model"], generator: torch.Generator) -> None:
    """Leaves the gradient of the mean log p(y|x) in `flat.gradient`, but for its sign, which no square sees."""
    outputs = flat.module(batch.inputs)
    if not bool(torch.isfinite(outputs).all()):
        raise TrainingError("an output of the network in calibration is not a finite number")
    labels = batch.labels
    if source == "model":
        labels = torch.multinomial(outputs.detach().softmax(dim=1), 1, generator=generator).squeeze(1)
    functional.cross_entropy(outputs, labels).backward()  # type: ignore[no-untyped-call]


def keep_exactly(scores: Scores, count: int, largest: bool, kept: Kept | None = None) -> Kept:
    """Exactly `count` of the places still kept: those of smallest or largest score, among equals the earlier ones.

    A threshold would keep too few or too many where scores are equal, as those of dead weights are: all zero.
    """
    among = np.arange(scores.size) if kept is None else np.flatnonzero(kept)
    values = -scores[among] if largest else scores[among]
    last = np.partition(values, count - 1)[count - 1]
    below = values < last
    ties = np.flatnonzero(values == last)[: count - np.count_nonzero(below)]
    chosen = np.zeros(scores.size, dtype=np.bool_)
    chosen[among[below]] = True
    chosen[among[ties]] = True
    return chosen


def places_of_share(size: int, share: float) -> int:
    """The share of the places, rounded up, with the share as the decimal it was written as.

    >>> places_of_share(100, 0.07), places_of_share(10, 0.301), places_of_share(3, 0.01)
    (7, 4, 1)
    """
    return math.ceil(Fraction(str(share)) * size)
