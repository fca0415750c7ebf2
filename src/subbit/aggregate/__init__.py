"""Streaming accumulators: memory does not grow with the number of clients."""

from subbit.aggregate.masks import MaskCounts
from subbit.aggregate.mean import WeightedMean

__all__ = ["MaskCounts", "WeightedMean"]
