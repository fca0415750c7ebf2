"""How much to shrink the covariance of a linear discriminant, and how sure it may be: both from its own statistics.

A discriminant that is fitted on few examples fits them perfectly and is far too sure of the others. Its logits then
have no gradient on the clients' examples, and training starts from noise. Let P be the inverse of the shrunk covariance
S, n the number of examples and n_c those of class c. For two classes with means m_c, m_k and d = m_c - m_k, the
difference of the logits of a new example of class c has

    twice its mean   d' P d - t (1 / n_c + 1 / n_k)     the second term: m_c and m_k are estimates
    variance         d' P S P d / q^2                   1 / q^2: so is S
    with             f = tr(S (S + lambda)^-1), q = 1 - f / n, t = tr(S P) / q

where lambda is the ridge that the shrinkage adds. f counts the directions that the shrinkage leaves free; the
correction by q is that of generalised cross-validation (Golub, Heath, Wahba, 1979) and of random matrix theory (Ledoit,
Peche, 2011). Both are summed over all pairs of classes, weighted by n_c n_k:

    shrinkage     the one with the largest (2 mean)^2 / variance: it separates new examples best
    temperature   2 mean / variance, the slope of the log odds for a normal difference, and half of it, because features
                  have longer tails than normal ones

benchmarks/heads.py compares both with what the test set would have chosen (docs/heads.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

SHRINKAGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""From which the best one is taken."""
LEAST_FREEDOM = 0.1
"""Smallest q: below it, the number of examples does not suffice for the correction."""
TAILS = 0.5
LEAST_TEMPERATURE = 2.0**-10


@dataclass(frozen=True)
class Separation:
    """Of new examples, predicted: twice the mean difference of logits and its variance, summed over pairs."""

    signal: float
    variance: float

    @property
    def quality(self) -> float:
        return self.signal**2 / self.variance if self.variance > 0 else 0.0

    @property
    def temperature(self) -> float:
        """Factor on the logits."""
        if not self.signal or not self.variance:
            return 1.0
        return min(max(TAILS * self.signal / self.variance, LEAST_TEMPERATURE), 1.0)


@dataclass(frozen=True)
class Rounding:
    """What the statistics do not show: what was rounded away or left out before they were added."""

    free: float | None = None
    """Examples less classes that the covariance is of; none: of all that the means are of."""
    floor: float = 0.0
    """Of the mean eigenvalue: directions may vary by this much although the covariance says less."""
    means: float = 0.0
    """Variance that rounding added to class means, in every direction, of the mean eigenvalue over n_c."""


EXACT = Rounding()


@dataclass(frozen=True)
class Spectrum:
    """The statistics in the basis in which the covariance within classes is diagonal."""

    eigenvalues: Tensor
    """Of the covariance within classes."""
    spread: float
    """What the covariance is shrunk to."""
    between: Tensor
    """Squared differences of class means along each direction, summed over all pairs with weights n_c n_k."""
    counts: Tensor
    """Examples of each class that has some."""
    rounding: Rounding = EXACT

    @classmethod
    def of(
        cls, eigenvalues: Tensor, spread: float, means: Tensor, counts: Tensor, rounding: Rounding = EXACT
    ) -> Spectrum:
        """`means`: of the classes, in the same basis."""
        total = counts.sum()
        centred = means - (counts[:, None] * means).sum(0) / total
        return cls(eigenvalues, spread, total * (counts[:, None] * centred.square()).sum(0), counts, rounding)

    def shrunk(self, shrinkage: float) -> Tensor:
        return (1.0 - shrinkage) * self.eigenvalues + shrinkage * self.spread

    def separation(self, shrinkage: float) -> Separation:
        shrunk, classes = self.shrunk(shrinkage), len(self.counts)
        examples = float(self.counts.sum())
        free = float(((1.0 - shrinkage) * self.eigenvalues / shrunk).sum())
        known = examples - classes if self.rounding.free is None else self.rounding.free
        q = 1.0 - free / max(known, 1.0)
        if q < LEAST_FREEDOM:
            return Separation(0.0, math.inf)
        # The sum over pairs of n_c n_k (1 / n_c + 1 / n_k) is (C - 1) n.
        noise = float((self.eigenvalues / shrunk).sum()) / q * (classes - 1) * examples
        noise += self.rounding.means * self.spread * float((1 / shrunk).sum()) * (classes - 1) * examples
        signal = max(float((self.between / shrunk).sum()) - noise, 0.0)
        likely = self.eigenvalues.clamp(min=self.rounding.floor * self.spread)
        return Separation(signal, float((self.between * likely / shrunk.square()).sum()) / q**2)

    def best_shrinkage(self, least: float = 0.0) -> float:
        """The one with the best separation, from `least` on; if none separates, the largest."""
        tried = [each for each in SHRINKAGES if each >= least] or [1.0]
        return max(reversed(tried), key=lambda each: self.separation(each).quality)
