"""Accumulators: one vector in memory, however many clients, except for the robust mean, which keeps them all."""

from subbit.aggregate.counts import MaskCounts, SignedCounts
from subbit.aggregate.mean import WeightedMean
from subbit.aggregate.robust import MEDIAN, AgreeingMean, TrimmedMean, clip_to_norm, trimmed_counts

__all__ = [
    "MEDIAN",
    "AgreeingMean",
    "MaskCounts",
    "SignedCounts",
    "TrimmedMean",
    "WeightedMean",
    "clip_to_norm",
    "trimmed_counts",
]
