"""Pooled lean summaries, and the head in fewer bits than `subbit.models.head_start.rounded_head` takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from subbit.models.discriminant import Rounding
from subbit.models.head_start import LdaStatistics
from subbit.models.lean_summary import LeanSummary

LOGIT_NOISE = 0.15
"""What rounding a head adds to its logits, relative to their standard deviation within classes: they tell classes
apart 1% less. Chosen on validation splits."""
RIDGE = 0.1
"""Of the mean variance of features. The covariance of few examples has directions that only seem to be free."""
TALLIES = 4


@dataclass(frozen=True)
class LeanPool:
    """What summaries add up to: one vector."""

    vector: Tensor
    classes: int
    width: int

    @staticmethod
    def size(classes: int, width: int) -> int:
        return LdaStatistics.vector_size(classes, width) + width * (width + 1) // 2 + width + TALLIES

    @classmethod
    def of(cls, summary: LeanSummary) -> LeanPool:
        examples, free = float(summary.counts.sum()), summary.free
        behind = free if summary.has_factors else 0.0
        noise = float(summary.units[2]) ** 2 / 12
        tallies = torch.tensor([free, behind, behind * summary.floor, examples * noise], dtype=torch.float64)
        statistics = summary.statistics()
        between = statistics.between[*_triangle(statistics.width)]
        parts = statistics.to_vector(torch.float64), between, summary.deviations.square(), tallies
        return cls(torch.cat(parts), len(summary.counts), len(summary.levels))

    def statistics(self) -> LdaStatistics:
        """Those of all examples. Without factors from any client, features vary independently of each other."""
        ends = LdaStatistics.vector_size(self.classes, self.width), self.width * (self.width + 1) // 2, self.width
        exact, between, squares, tallies = torch.split(self.vector, [*ends, TALLIES])
        found = LdaStatistics.from_vector(exact, self.classes, self.width)
        free, behind = tallies[:2].tolist()
        if self._has_factors:
            found.moment *= free / behind
        else:
            found.moment = torch.diag(squares)
        # The means of clients vary as examples do, which tells most of the covariance where each has few of a class.
        rows, columns = _triangle(self.width)
        found.moment[rows, columns] += between
        found.moment[columns, rows] = found.moment[rows, columns]
        return found

    @property
    def _has_factors(self) -> bool:
        return float(self.vector[-TALLIES:][1]) > 0

    @property
    def rounding(self) -> Rounding:
        free, behind, floor, noise = self.vector[-TALLIES:].tolist()
        counts = self.vector[: self.classes]
        examples = float(counts.sum())
        among_means = examples - float((counts > 0).sum()) - free
        means = noise / max(examples, 1.0)
        if not self._has_factors:
            return Rounding(means=means)
        return Rounding(behind + among_means, floor / behind, means)


def _triangle(width: int) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(width, width)
    return rows, columns


def shaped_head(statistics: LdaStatistics, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The head in multiples of a power of two. Rounding errors of weights cancel in the logits, where features vary
    together: see `round_shaped`. What rounding changes at the mean of all features is put into the bias.
    """
    counts, total = statistics.counts, statistics.counts.sum()
    centre = statistics.sums.sum(0) / total
    covariance = statistics.moment / total - torch.outer(centre, centre)
    within = (statistics.moment - statistics.between) / total
    apart = weight.double() - weight.double().mean(0)
    logits = float((counts * (apart @ within * apart).sum(1)).sum() / total)
    mean = float(covariance.trace()) / statistics.width
    if not (logits > 0.0 and mean > 0.0):
        return weight, bias
    root = torch.linalg.cholesky(covariance + RIDGE * mean * torch.eye(statistics.width, dtype=torch.float64)).T
    # With the feedback, every weight adds step^2 / 12 times the square of its diagonal value.
    variance = math.exp(float(2 * root.diagonal().log().mean())) * statistics.width
    step = 2.0 ** math.floor(math.log2(LOGIT_NOISE * math.sqrt(12 * logits / variance)))
    rounded = round_shaped(weight.double() / step, root) * step
    moved = bias.double() + (weight.double() - rounded) @ centre
    return rounded.float(), ((moved / step).round() * step).float()


def round_shaped(rows: Tensor, root: Tensor) -> Tensor:
    """Whole numbers near each row x for which |R (x - q)| is small, R = `root` upper triangular.

    From the last value to the first, each is rounded after it has been moved by what makes up for the errors of those
    behind it (Babai, "On Lovasz' lattice reduction and the nearest lattice point problem", 1986). The product of all
    diagonal values decides then, where rounding to the nearest takes the sum of all squares.
    """
    feedback = root / root.diagonal()[:, None]
    rounded, errors = torch.zeros_like(rows), torch.zeros_like(rows)
    for place in reversed(range(rows.shape[1])):
        moved = rows[:, place] + errors[:, place + 1 :] @ feedback[place, place + 1 :]
        rounded[:, place] = moved.round()
        errors[:, place] = rows[:, place] - rounded[:, place]
    return rounded
