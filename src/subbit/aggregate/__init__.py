"""Accumulators. They keep one vector for any number of clients, except for the robust ones, which keep all vectors."""

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
