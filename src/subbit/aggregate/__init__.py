"""Accumulators: one vector in memory, however many clients, except for the robust mean, which keeps them all."""

from subbit.aggregate.masks import MaskCounts, SignedCounts
from subbit.aggregate.mean import WeightedMean
from subbit.aggregate.robust import MEDIAN, TrimmedMean, clip_to_norm, share_dropped, trimmed_counts

__all__ = [
    "MEDIAN",
    "MaskCounts",
    "SignedCounts",
    "TrimmedMean",
    "WeightedMean",
    "clip_to_norm",
    "share_dropped",
    "trimmed_counts",
]
