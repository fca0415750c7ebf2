"""A client's statistics for the fitted head in a quarter of the bytes of `subbit.models.feature_summary`.

That summary is as careful as if there were one client. Here the number of clients decides: what rounding adds to each
of their summaries is independent, and its mean is small. Five clients round as one would, twenty as a `crowd` of 4; but
a client with few examples, which cannot see whether small directions matter, as one of a smaller crowd.

    class means  the step is `crowd` times as coarse, at most 4 times
    covariance   factors are sent by some clients only, drawn from the seed until they have about `EXAMPLES` together
    factors      directions below the likely shrinkage are left out in a large crowd, below its third power by one
                 client. What is left out counts as variation of each feature alone
    deviations   whole powers of 2^(1/16), and of 2^(1/2) from clients that send no factors: there they are no more than
                 the units of the means

The server knows all of this, and how sure the head may be follows from it (`subbit.models.discriminant.Rounding`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from subbit.models.feature_summary import (
    CONSTANT,
    CONSTANT_STEPS,
    MOST_STEP,
    correlations_of,
    directions,
    floor_for,
    likely_shrinkage,
)
from subbit.models.head_start import LdaStatistics

FEW, ENOUGH = 5, 50
"""Clients that are no crowd, and examples of a client that is fully part of one."""
EXAMPLES = 700
"""Of how many the covariance should be, and of more where clients are few. Chosen on validation splits, as all here."""
COARSEST = 4.0
"""Of means. The mean of coarser ones would be off: a step of two standard deviations is what noise smoothes."""
CENTRE_STEP = 0.5
"""Of the standard deviation of a feature."""
FINE, COARSE = 16, 2
"""Steps of a deviation for each factor of two: with factors, and without."""
UNITS = 4
SMALLEST = 1e-30
"""Deviations below this are none: their unit would not fit into float32."""


def is_drawn(rank: int, examples: int, width: int) -> bool:
    """Whether the client at this place of the order sends factors. More rows than features are of no use, so a client
    with many examples is drawn as one with `width`.

    >>> [is_drawn(rank, 100, 1280) for rank in (0, 6, 7)]
    [True, True, False]
    """
    return rank * min(examples, width) < EXAMPLES


@dataclass(frozen=True)
class LeanSummary:
    counts: Tensor
    """Examples of each class, [C]."""
    units: Tensor
    """bfloat16 numbers: the deviation that stands at 1, the unit of features that do not vary within classes, the step
    of class means in standard deviations, and the step of factors; 0: no factors."""
    levels: Tensor
    """Whole numbers [D]: how much larger each deviation is, in steps. 0: the feature does not vary."""
    numbers: Tensor
    """Whole numbers [1 + C + D, D]: the centre, class sums relative to it, and the factors, largest first."""

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int, clients: int, drawn: bool) -> LeanSummary:
        known, width = LdaStatistics.from_features(features, labels, classes), features.shape[1]
        features, means = features.double(), known.sums / known.counts.clamp(min=1)[:, None]
        centred = features - means[labels.long()]
        deviations = centred.square().sum(0).sqrt()
        least = CONSTANT * features.square().sum(0).sqrt().clamp(min=SMALLEST / CONSTANT)
        varying, present = deviations > least, known.counts > 0
        free = len(labels) - int(present.sum())
        crowd = max(clients / FEW * min(free / ENOUGH, 1.0), 1.0)
        units, levels = torch.zeros(UNITS, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
        floor, rows = floor_for(1.0, 1, crowd), torch.zeros(0, width, dtype=torch.float64)
        if free > 0 and bool(varying.any()):
            units[0] = _sent(deviations[varying].median())
            steps = FINE if drawn else COARSE
            nearest = (steps * torch.log2(deviations[varying] / units[0])).round()
            levels[varying] = torch.where(nearest < 0, nearest, nearest + 1)
            scale = units[0] * torch.where(varying, torch.exp2((levels - (levels > 0).double()) / steps), torch.inf)
            eigenvalues, rows = directions(centred / scale)
            floor = floor_for(likely_shrinkage(eigenvalues, free, int(varying.sum())), free, crowd)
            count = max(int((eigenvalues >= floor).sum()), 1)
            units[3] = _sent(torch.tensor(math.sqrt(12 * floor / count))) if drawn else 0.0
            rows = (rows[:count] / units[3]).round() if drawn else rows[:0]
        centre = known.sums.sum(0) / max(len(labels), 1)
        unit = torch.where(varying, 0.0, centre.abs()).max() / (CONSTANT_STEPS * CENTRE_STEP)
        units[1] = _sent(unit)
        step = min(math.sqrt(12 * floor), MOST_STEP) * min(crowd, COARSEST)
        units[2] = _sent(torch.tensor(step))
        numbers = torch.zeros(1 + classes + width, width, dtype=torch.float64)
        found = cls(known.counts, units, levels, numbers)
        scale = torch.where(found.scales > 0, found.scales, torch.inf)
        numbers[0] = (centre / (CENTRE_STEP * scale)).round()
        beside = known.counts[:, None] * (means - found.centre) / (found.sum_steps * scale)
        numbers[1 : 1 + classes] = beside.round()
        numbers[1 + classes : 1 + classes + len(rows)] = rows
        return found

    @property
    def has_factors(self) -> bool:
        return bool(self.units[3] > 0)

    @property
    def free(self) -> float:
        """Examples less classes: of what the deviations are."""
        return max(float(self.counts.sum() - (self.counts > 0).sum()), 0.0)

    @property
    def deviations(self) -> Tensor:
        """Of each feature the root of its sum of squares within classes."""
        steps = FINE if self.has_factors else COARSE
        sizes = self.units[0] * torch.exp2((self.levels - (self.levels > 0).double()) / steps)
        return torch.where(self.levels == 0, 0.0, sizes)

    @property
    def scales(self) -> Tensor:
        """The standard deviation of each feature, or what stands for it."""
        return torch.where(self.levels == 0, self.units[1], self.deviations / math.sqrt(max(self.free, 1.0)))

    @property
    def centre(self) -> Tensor:
        return self.numbers[0] * CENTRE_STEP * self.scales

    @property
    def sum_steps(self) -> Tensor:
        """Of the class sums, in standard deviations of features, [C, 1]."""
        return self.units[2] * self.counts.clamp(min=1).sqrt()[:, None]

    @property
    def floor(self) -> float:
        """What was left out in every direction, of the mean eigenvalue."""
        rows = int(self.numbers[1 + len(self.counts) :].any(1).sum())
        return min(rows * float(self.units[3]) ** 2 / 12, 1.0)

    def statistics(self) -> LdaStatistics:
        """The moment is what varies within classes, of which a client without factors says nothing."""
        classes, width = len(self.counts), len(self.levels)
        found = LdaStatistics(classes, width)
        found.counts.copy_(self.counts)
        beside = self.numbers[1 : 1 + classes] * self.sum_steps * self.scales
        found.sums = self.counts[:, None] * self.centre + beside
        if self.has_factors:
            many = self.free >= width
            whole = 0.0 if many else 1 / float(self.units[3])
            correlations = correlations_of(self.numbers[1 + classes :], many, whole, 1.0)
            found.moment = correlations * self.deviations[:, None] * self.deviations[None, :]
        return found


def _sent(value: Tensor) -> Tensor:
    """As bfloat16, in which units are sent."""
    return value.bfloat16().double()
