"""Initialisation of the head of a frozen backbone: random, or the linear discriminant of the clients' features.

FiT-LDA (Shysheya et al., "FiT: parameter efficient few-shot transfer learning for personalized and federated image
classification", ICLR 2023) needs no training. Class means mu_c, priors pi_c and one covariance Sigma of features give

    weight_c = Sigma^-1 (mu_c - mu)        bias_c = -1/2 (mu_c - mu)' Sigma^-1 (mu_c + mu) + log pi_c

where mu is the mean of all features, which adds the same number to all logits. All of these follow from sums over
examples, so the clients' statistics can simply be added.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator
from subbit.models.discriminant import EXACT, Rounding, Spectrum

ABSENT_MARGIN = 1e4
"""Distance of the bias of a class without examples below all others: never predicted, but the loss is finite."""
LOGIT_NOISE = 0.01
"""What rounding a head adds to its logits, relative to their own standard deviation."""
LEAST_SPREAD = 1e-6
"""Minimum spread within classes, relative to the mean square of features, if all examples of each class coincide."""


@torch.no_grad()
def kaiming_(linear: nn.Linear, key: int) -> nn.Linear:
    """Weights from N(0, 2 / fan_in), bias zero (He et al., "Delving deep into rectifiers", 2015). In place."""
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu", generator=torch_generator(key))
    if linear.bias is not None:
        linear.bias.zero_()
    return linear


class LdaStatistics:
    """Class counts [C], class sums [C, D] and second moment [D, D] of features, in float64."""

    def __init__(self, classes: int, width: int) -> None:
        self.classes, self.width = classes, width
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.sums = torch.zeros(classes, width, dtype=torch.float64)
        self.moment = torch.zeros(width, width, dtype=torch.float64)

    @classmethod
    def from_features(cls, features: Tensor, labels: Tensor, classes: int) -> LdaStatistics:
        statistics = cls(classes, features.shape[1])
        statistics.add(features, labels)
        return statistics

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch of features [n, D] with labels [n]."""
        if features.shape != (len(labels), self.width):
            raise ModelError(f"features are {tuple(features.shape)}: needs ({len(labels)}, {self.width})")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ModelError(f"labels go from {labels.min()} to {labels.max()}: needs 0 to {self.classes - 1}")
        features, labels = features.detach().double(), labels.long()
        self.counts += torch.bincount(labels, minlength=self.classes)
        self.sums.index_add_(0, labels, features)
        self.moment += features.T @ features

    @staticmethod
    def vector_size(classes: int, width: int) -> int:
        return classes + classes * width + width * (width + 1) // 2

    def to_vector(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Counts, sums and the upper triangle of the moment in one vector. Vectors of clients add up."""
        rows, columns = torch.triu_indices(self.width, self.width)
        return torch.cat([self.counts, self.sums.reshape(-1), self.moment[rows, columns]]).to(dtype)

    @classmethod
    def from_vector(cls, vector: Tensor, classes: int, width: int) -> LdaStatistics:
        if vector.shape != (cls.vector_size(classes, width),):
            raise ModelError(
                f"statistics of shape {tuple(vector.shape)}: {classes} classes of width {width} "
                f"need ({cls.vector_size(classes, width)},)"
            )
        statistics = cls(classes, width)
        triangle = width * (width + 1) // 2
        counts, sums, moment = torch.split(vector.detach().double(), [classes, classes * width, triangle])
        rows, columns = torch.triu_indices(width, width)
        statistics.counts.copy_(counts)
        statistics.sums.copy_(sums.view(classes, width))
        statistics.moment[rows, columns] = moment
        statistics.moment[columns, rows] = moment
        return statistics

    # For coded heads: what codes well is between -1 and 1, and class sums tell the rest of the moment.

    @property
    def between(self) -> Tensor:
        """The part of the second moment that class means explain."""
        return (self.sums / self.counts.clamp(min=1)[:, None]).T @ self.sums

    def to_correlations(self) -> tuple[Tensor, Tensor]:
        """Counts, sums and deviations within classes, and the correlations above the diagonal; both float32."""
        within = self.moment - self.between
        deviations = within.diagonal().clamp(min=0).sqrt()
        scale = torch.where(deviations > 0, deviations, torch.inf)
        rows, columns = torch.triu_indices(self.width, self.width, 1)
        correlations = (within / scale[:, None] / scale[None, :])[rows, columns].clamp(-1, 1)
        return torch.cat([self.counts, self.sums.reshape(-1), deviations]).float(), correlations.float()

    @classmethod
    def from_correlations(cls, sums: Tensor, correlations: Tensor, classes: int, width: int) -> LdaStatistics:
        statistics = cls(classes, width)
        counts, totals, deviations = torch.split(sums.double(), [classes, classes * width, width])
        statistics.counts.copy_(counts)
        statistics.sums.copy_(totals.view(classes, width))
        within = torch.eye(width, dtype=torch.float64)
        rows, columns = torch.triu_indices(width, width, 1)
        within[rows, columns] = within[columns, rows] = correlations.double()
        statistics.moment = within * deviations[:, None] * deviations[None, :] + statistics.between
        return statistics


def solve(
    statistics: LdaStatistics,
    shrinkage: float | Literal["auto"] = "auto",
    temperature: float | Literal["auto"] = "auto",
    least: float = 0.0,
    rounding: Rounding = EXACT,
) -> tuple[Tensor, Tensor]:
    """Weight [C, D] and bias [C] of the linear discriminant, in float32. `auto` shrinks by at least `least`.

    The covariance within classes is shrunk towards its scaled identity, (1 - shrinkage) S + shrinkage tr(S) / D, which
    also makes it invertible if there are fewer examples than features. Weight and bias are multiplied by the
    temperature, which changes no prediction. `auto`: see `subbit.models.discriminant`. Scaling all statistics by one
    factor changes nothing, except with `auto`, which counts examples.
    """
    if shrinkage != "auto" and not 0.0 < shrinkage <= 1.0:
        raise ModelError(f"shrinkage={shrinkage}: needs a number above 0, up to 1")
    if temperature != "auto" and not 0.0 < temperature < math.inf:
        raise ModelError(f"temperature={temperature}: needs a number above 0")
    counts, sums, moment = statistics.counts, statistics.sums, statistics.moment
    if not all(bool(torch.isfinite(part).all()) for part in (counts, sums, moment)) or bool((counts < 0).any()):
        raise ModelError("statistics of features hold values that are not finite, or negative counts")
    present = counts > 0
    if not bool(present.any()):
        raise ModelError("statistics of features without one example: a discriminant needs some")
    total = counts.sum()
    means = sums[present] / counts[present, None]
    within = (moment - means.T @ (counts[present, None] * means)) / total
    # Rounding of a float32 vector can make eigenvalues slightly negative; a covariance has none.
    eigenvalues, vectors = torch.linalg.eigh(within)
    eigenvalues = eigenvalues.clamp(min=0.0)
    smallest = LEAST_SPREAD * float(moment.trace() / total) / statistics.width
    spread = max(float(eigenvalues.mean()), smallest, torch.finfo(torch.float32).tiny)
    spectrum = Spectrum.of(eigenvalues, spread, means @ vectors, counts[present], rounding)
    if shrinkage == "auto":
        shrinkage = spectrum.best_shrinkage(least)
    if temperature == "auto":
        temperature = spectrum.separation(shrinkage).temperature
    # Of x - centre: features vary little around a large mean, and a term common to all classes would drown the others.
    centre = sums.sum(0) / total
    weight = torch.zeros_like(sums)
    weight[present] = (means - centre) @ (vectors / spectrum.shrunk(shrinkage)) @ vectors.T
    bias = torch.empty_like(counts)
    bias[present] = -0.5 * (weight[present] * (means + centre)).sum(1) + torch.log(counts[present] / total)
    bias[~present] = bias[present].min() - ABSENT_MARGIN / temperature
    return (temperature * weight).float(), (temperature * bias).float()


def rounded_head(statistics: LdaStatistics, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The head in multiples of a power of two, which `dyadic` sends in fewer bytes.

    Rounding adds noise to the logits, with the variance step^2 / 12 times the total variance of the features. The step
    is the largest for which it is small against the logits. What rounding changes at the mean of all features is put
    into the bias.
    """
    total = statistics.counts.sum()
    centre = statistics.sums.sum(0) / total
    covariance = statistics.moment / total - torch.outer(centre, centre)
    apart = weight.double() - weight.double().mean(0)
    logits = float((apart @ covariance * apart).sum(1).mean())
    if not (logits > 0.0 and float(covariance.trace()) > 0.0):
        return weight, bias
    step = 2.0 ** math.floor(math.log2(LOGIT_NOISE * math.sqrt(12 * logits / float(covariance.trace()))))
    rounded = (weight.double() / step).round() * step
    moved = bias.double() + (weight.double() - rounded) @ centre
    return rounded.float(), ((moved / step).round() * step).float()
