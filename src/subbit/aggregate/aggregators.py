"""Aggregators of real vectors by name: how the clients' changes become one.

A piece makes an `Accumulator` for each round. To add your own, register a frozen dataclass with `name` and
`accumulator(size)` under the kind "aggregator".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from subbit.aggregate.mean import WeightedMean
from subbit.aggregate.robust import MEDIAN, AgreeingMean, TrimmedMean
from subbit.core.registry import make_registry, register
from subbit.core.values import require

make_registry("aggregator")


class Accumulator(Protocol):
    """One round's vectors on their way to their mean."""

    order_free: bool
    """False where the order of additions can change a bit of the result: then they come in the order of clients."""

    def add(self, vector: NDArray[Any], weight: float) -> None: ...

    def mean(self) -> NDArray[np.float64]:
        """The mean; zero when nothing with a weight was added."""


class Aggregator(Protocol):
    name: ClassVar[str]

    def accumulator(self, size: int) -> Accumulator: ...


def averages_vectors(aggregator: Any) -> bool:
    """Some are registered that count bits."""
    return hasattr(aggregator, "accumulator")


def averages(piece: Any) -> bool:
    """Whether it makes accumulators of vectors; those of bits count instead."""
    return hasattr(piece, "accumulator")


def check_trim(trim: float) -> None:
    require(0 <= trim < MEDIAN, f"trim={trim}: needs a share from 0 up to, not including, {MEDIAN}")


@register("aggregator", "mean")
@dataclass(frozen=True)
class Mean:
    """Weighted by examples."""

    name: ClassVar[str] = "mean"

    def accumulator(self, size: int) -> WeightedMean:
        return WeightedMean(size)


@register("aggregator", "trimmed")
@dataclass(frozen=True)
class Trimmed:
    """Coordinate by coordinate, all clients alike."""

    name: ClassVar[str] = "trimmed"
    trim: float = 0.1
    """The share of clients, rounded up, that is dropped at each end."""

    def __post_init__(self) -> None:
        check_trim(self.trim)

    def accumulator(self, size: int) -> TrimmedMean:
        return TrimmedMean(size, self.trim)


@register("aggregator", "median")
@dataclass(frozen=True)
class Median:
    """Coordinate by coordinate, all clients alike."""

    name: ClassVar[str] = "median"

    def accumulator(self, size: int) -> TrimmedMean:
        return TrimmedMean(size, MEDIAN)


@register("aggregator", "agreement")
@dataclass(frozen=True)
class Agreement:
    """Without the clients whose signs agree least with those of the others. For sparse changes."""

    name: ClassVar[str] = "agreement"
    trim: float = 0.1
    """The share of clients, rounded up, that is left out."""

    def __post_init__(self) -> None:
        check_trim(self.trim)

    def accumulator(self, size: int) -> AgreeingMean:
        return AgreeingMean(size, self.trim)
