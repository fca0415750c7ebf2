"""Aggregators of real vectors by name: how the clients' changes are combined.

An aggregator creates an `Accumulator` for each round. To add your own, register a frozen dataclass with `name` and
`accumulator(size)` under the kind "aggregator".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from subbit.aggregate.mean import WeightedMean
from subbit.aggregate.robust import MEDIAN, AgreeingMean, TrimmedMean
from subbit.core.pieces import needs
from subbit.core.registry import make_registry, register
from subbit.core.values import require

make_registry("aggregator", check=needs("aggregator", "accumulator", "thresholds"))


class Accumulator(Protocol):
    """Collects the vectors of one round and returns their mean."""

    order_free: bool
    """False if the order of additions can change the result. Vectors are then added in the order of the clients."""

    def add(self, vector: NDArray[Any], weight: float) -> None: ...

    def mean(self) -> NDArray[np.float64]:
        """The mean; zero if nothing with a weight was added."""


class Aggregator(Protocol):
    name: ClassVar[str]

    def accumulator(self, size: int) -> Accumulator: ...


def averages_vectors(aggregator: Any) -> bool:
    """Whether it averages vectors; some registered aggregators count bits instead."""
    return hasattr(aggregator, "accumulator")


def averages(piece: Any) -> bool:
    """Whether it creates accumulators of vectors; aggregators of bits count instead."""
    return hasattr(piece, "accumulator")


def check_trim(trim: float) -> None:
    require(0 <= trim < MEDIAN, f"trim={trim}: needs a share from 0 up to, not including, {MEDIAN}")


@register("aggregator", "mean")
@dataclass(frozen=True)
class Mean:
    """Mean weighted by the number of examples."""

    name: ClassVar[str] = "mean"

    def accumulator(self, size: int) -> WeightedMean:
        return WeightedMean(size)


@register("aggregator", "trimmed")
@dataclass(frozen=True)
class Trimmed:
    """Trimmed mean of each coordinate, all clients weighted equally."""

    name: ClassVar[str] = "trimmed"
    trim: float = 0.1
    """The fraction of clients, rounded up, that is dropped at each end."""

    def __post_init__(self) -> None:
        check_trim(self.trim)

    def accumulator(self, size: int) -> TrimmedMean:
        return TrimmedMean(size, self.trim)


@register("aggregator", "median")
@dataclass(frozen=True)
class Median:
    """Median of each coordinate, all clients weighted equally."""

    name: ClassVar[str] = "median"

    def accumulator(self, size: int) -> TrimmedMean:
        return TrimmedMean(size, MEDIAN)


@register("aggregator", "agreement")
@dataclass(frozen=True)
class Agreement:
    """Mean without the clients whose signs agree least with the others. For sparse changes."""

    name: ClassVar[str] = "agreement"
    trim: float = 0.1
    """The fraction of clients, rounded up, that is left out."""

    def __post_init__(self) -> None:
        check_trim(self.trim)

    def accumulator(self, size: int) -> AgreeingMean:
        return AgreeingMean(size, self.trim)
