"""A client's statistics for the fitted head as few whole numbers: class means, and factors of the covariance.

The covariance within classes has D (D + 1) / 2 values, but a client with n examples knows it only along n directions,
and most of these only roughly. So it sends F = sqrt(L) V', the scaled eigenvectors of its correlations V L V', rounded
to multiples of one step. The server takes F' F, with every column of F scaled to length 1 again:

    no lie and no rounding can make an eigenvalue negative, as it can with rounded correlations
    every direction gets the same error, `floor` = rows step^2 / 12, which is the square of what was rounded away
    directions below the floor vanish and take no bytes (`subbit.codecs.steps`)

The floor acts as a shrinkage of that size, so it may be as large as a shrinkage that does no harm. How large that is
depends on the network: small directions of some features are noise, of others they tell classes apart. The client's own
eigenvalues say it. `likely_shrinkage` is the shrinkage under which examples that are left out are most likely. Its
third power is the floor, because one client sees less of small directions than all of them together.

Class means are sent in parts of what they are uncertain by, the standard deviation of a mean of n_c examples, with an
error of at most the same floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from subbit.models.head_start import LdaStatistics

SHRINKAGES = tuple(float(10.0 ** (power / 8 - 3)) for power in range(25))
LEAST_FLOOR, MOST_FLOOR = 0.002, 0.1
"""Of the mean eigenvalue. benchmarks/heads.py measures what they cost."""
POWER = 3
MANY = 64
"""Examples. With fewer, eigenvalues say little, and a finer step costs little: the floor is lower."""
USUAL = 200
"""Examples. A client with more of them knows small directions better, and fewer others average its errors out: the
floor falls as the number grows."""
CENTRE_STEP = 0.25
"""Of the standard deviation of a feature. The rest of it is part of the class means."""
MOST_STEP = 0.5
"""Of the standard deviation of a class mean: adds 2% to its variance. The error is the same in all directions, so it
must not exceed the floor either."""
CONSTANT_STEPS = 64
"""Features without deviations have no standard deviation: their largest value is this number of steps of the centre."""
CONSTANT = 1e-6
"""Deviations below this part of the values are rounding of float32."""


@dataclass(frozen=True)
class FeatureSummary:
    counts: Tensor
    """Examples of each class, [C]."""
    scales: Tensor
    """bfloat16 numbers [D + 2]: of each feature the root of its sum of squares within classes, then the unit of
    features that do not vary within classes, then the step of class means."""
    numbers: Tensor
    """Whole numbers [1 + C + D, D]: the centre, class means relative to it, and the factors, largest first."""

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> FeatureSummary:
        known, width = LdaStatistics.from_features(features, labels, classes), features.shape[1]
        features, means = features.double(), known.sums / known.counts.clamp(min=1)[:, None]
        centred = features - means[labels.long()]
        deviations = centred.square().sum(0).sqrt()
        deviations[deviations <= CONSTANT * features.square().sum(0).sqrt()] = 0.0
        deviations = deviations.bfloat16().double()
        varying, present = deviations > 0, known.counts > 0
        free, floor, rows = len(labels) - int(present.sum()), MOST_FLOOR, torch.zeros(0, int(varying.sum()))
        if free > 0 and bool(varying.any()):
            rows, floor = factors(centred[:, varying] / deviations[varying], free)
        centre = known.sums.sum(0) / max(len(labels), 1)
        unit = float(torch.where(varying, 0.0, centre.abs()).max()) / (CONSTANT_STEPS * CENTRE_STEP)
        ends = torch.tensor([unit, min(math.sqrt(12 * floor), MOST_STEP)], dtype=torch.float64)
        found = cls(
            known.counts,
            torch.cat([deviations, ends.bfloat16().double()]),
            torch.zeros(1 + classes + width, width, dtype=torch.float64),
        )
        numbers, scale = found.numbers, torch.where(found.units > 0, found.units, torch.inf)
        numbers[0] = (centre / (CENTRE_STEP * scale)).round()
        beside = (means - found.centre) / (found.scales[-1] * scale)
        numbers[1 : 1 + classes] = torch.where(present[:, None], beside * known.counts.sqrt()[:, None], 0.0).round()
        numbers[1 + classes : 1 + classes + len(rows), varying] = rows.double()
        return found

    @property
    def units(self) -> Tensor:
        """The standard deviation of each feature, or what stands for it."""
        free = max(float(self.counts.sum() - (self.counts > 0).sum()), 1.0)
        return torch.where(self.scales[:-2] > 0, self.scales[:-2] / math.sqrt(free), self.scales[-2])

    @property
    def centre(self) -> Tensor:
        return self.numbers[0] * CENTRE_STEP * self.units

    def statistics(self) -> LdaStatistics:
        classes, deviations = len(self.counts), self.scales[:-2]
        found = LdaStatistics(classes, len(deviations))
        found.counts.copy_(self.counts)
        # n_c mu_c = n_c centre + sqrt(n_c) (what is beside it), which is 0 for classes without examples.
        beside = self.numbers[1 : 1 + classes] * self.scales[-1] * self.units
        found.sums = self.counts[:, None] * self.centre + self.counts.sqrt()[:, None] * beside
        many = float(self.counts.sum()) - int((self.counts > 0).sum()) >= len(deviations)
        correlations = correlations_of(self.numbers[1 + classes :], many)
        found.moment = correlations * deviations[:, None] * deviations[None, :] + found.between
        return found


def correlations_of(rows: Tensor, many: bool, least: float = 0.0, most: float = MOST_FLOOR) -> Tensor:
    """What rows of whole steps say, with columns scaled to length 1. Shorter ones than `least` steps are not scaled to
    it as a whole: what is missing counts as variation of the feature alone.

    `many`: the examples are at least as many as the features.
    """
    rows = rows[rows.any(1)]
    lengths = rows.square().sum(0).sqrt().clamp(min=least)
    rows = rows / torch.where(lengths > 0, lengths, torch.inf)
    correlations = (rows.T @ rows).fill_diagonal_(1.0)
    # What is not finite is refused by whoever asked for the statistics.
    if many and bool(lengths.any()) and bool(correlations.isfinite().all()):
        # So many examples vary in every direction: those that rounding has removed vary by about the floor. Left
        # at zero, they would seem to tell classes apart perfectly.
        floor = len(rows) / (12 * float(lengths[lengths > 0].square().mean()))
        eigenvalues, vectors = torch.linalg.eigh(correlations)
        correlations = (vectors * eigenvalues.clamp(min=min(floor, most))) @ vectors.T
    return correlations


def factors(scaled: Tensor, free: int) -> tuple[Tensor, float]:
    """Rows F, in whole steps, with F' F nearly scaled' scaled, whose diagonal is 1; and the floor of its eigenvalues.

    `free`: examples less classes.
    """
    eigenvalues, rows = directions(scaled)
    floor = floor_for(likely_shrinkage(eigenvalues, free, scaled.shape[1]), free)
    count = max(int((eigenvalues >= floor).sum()), 1)
    return (rows / math.sqrt(12 * floor / count)).round(), floor


def directions(scaled: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of scaled' scaled, largest first, and rows F with F' F equal to it."""
    examples, width = scaled.shape
    if examples <= width:
        eigenvalues, vectors = torch.linalg.eigh(scaled @ scaled.T)
        rows = vectors.T @ scaled
    else:
        eigenvalues, vectors = torch.linalg.eigh(scaled.T @ scaled)
        rows = eigenvalues.clamp(min=0).sqrt()[:, None] * vectors.T
    return eigenvalues.clamp(min=0).flip(0), rows.flip(0)


def floor_for(shrinkage: float, free: int, crowd: float = 1.0) -> float:
    """How much may be removed in every direction: the larger the `crowd`, the nearer the likely shrinkage itself."""
    power, most = 1 + (POWER - 1) / crowd, math.pow(MOST_FLOOR, 1 / crowd)
    floor = min(math.pow(shrinkage, power), most) * min(crowd * free / MANY, 1.0) ** 2
    return max(floor, LEAST_FLOOR) * min(crowd * USUAL / free, 1.0)


def likely_shrinkage(eigenvalues: Tensor, free: int, width: int) -> float:
    """The shrinkage of a correlation matrix to the identity under which examples that are left out are most likely.

    Of a normal distribution with covariance A = (1 - s) S + s, where S = W / free. Without one example x, S loses
    x x' / free, so with h = (1 - s) x' A^-1 x / free

        -2 log likelihood(x) = log det A + log(1 - h) + (x' A^-1 x) / (1 - h) + constant

    (Theiler, "The incredible shrinking covariance estimator", 2012), and the mean of x' A^-1 x is tr(S A^-1).
    """

    def surprise(shrinkage: float) -> float:
        shrunk = (1 - shrinkage) * eigenvalues + shrinkage
        distance = float((eigenvalues / shrunk).sum())
        lever = (1 - shrinkage) * distance / free
        if lever >= 1:
            return math.inf
        spread = float(shrunk.log().sum()) + (width - len(eigenvalues)) * math.log(shrinkage)
        return spread + math.log1p(-lever) + distance / (1 - lever)

    shrinkage: float = min(reversed(SHRINKAGES), key=surprise)
    return shrinkage
