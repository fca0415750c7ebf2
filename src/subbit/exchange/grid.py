"""Broadcasts on a grid: all sides hold levels, and the server broadcasts the new levels given the old ones.

With the old levels as reference (`subbit.codecs.counted`) an unchanged place costs almost nothing, so a place is only
updated when the server's value is `deadzone` away. The server keeps its values in full precision and knows what clients
hold, so rounding errors are corrected later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Counts, Shared, Vector, make_codec
from subbit.codecs.sampler import Thresholds, thresholds_of_counts
from subbit.codecs.take import take
from subbit.core.values import require
from subbit.exchange.exchange import Held, Part, Payloads, State, as_float32

Levels = NDArray[np.uint16]
LEVELS = "levels"
MILLION = 1_000_000
PIECE = 1 << 14  # Positions compared at a time, so that what is computed on the way stays in the cache.


class Grid(ABC):
    """The values that can be broadcast. Its field `deadzone` is how far a value must move to be sent."""

    deadzone: float

    @property
    @abstractmethod
    def largest(self) -> int:
        """Levels range from 0 to this."""

    @abstractmethod
    def nearest(self, values: NDArray[Any]) -> Levels: ...

    @abstractmethod
    def values(self, levels: Levels) -> NDArray[Any]: ...


@dataclass(frozen=True)
class ScoreGrid(Grid):
    """Grid of scores; the middle level is score 0."""

    step: float = 0.25
    """Step of the grid on which scores are broadcast."""
    deadzone: float = 0.125
    """A place is updated when the server's score is this far from what clients hold."""
    score_limit: float = 5.0
    """Bound on the magnitude of scores: a mask probability of 0 or 1 could never change again."""

    def __post_init__(self) -> None:
        limit = self.score_limit
        require(0 < limit <= 10, f"score_limit={limit}: needs a number above 0, at most 10")
        require(limit / 1000 <= self.step <= limit, f"step={self.step}: needs score_limit / 1000 to score_limit")
        require(self.deadzone >= 0, f"deadzone={self.deadzone}: needs 0 or more")

    @property
    def largest(self) -> int:
        return 2 * round(self.score_limit / self.step)

    def nearest(self, values: NDArray[Any]) -> Levels:
        levels: Levels = np.clip(np.rint(values / self.step) + self.largest // 2, 0, self.largest).astype(np.uint16)
        return levels

    def values(self, levels: Levels) -> Vector:
        return take(_scores_table(self.largest, self.step), levels)

    def within(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores.clip(-self.score_limit, self.score_limit)


@lru_cache(maxsize=4)
def _scores_table(largest: int, step: float) -> Vector:
    return as_float32((np.arange(largest + 1) - largest // 2) * step)


@dataclass(frozen=True)
class ThetaGrid(Grid):
    """Grid of probabilities."""

    grid: int = 100
    """Number of steps of theta between 0 and 1 in broadcasts."""
    deadzone: float = 0.02
    """A place is updated when the server's theta is this far from what clients hold."""
    clamp: float = 0.01
    """Distance that theta keeps from 0 and 1, where a place could never change again."""

    def __post_init__(self) -> None:
        require(2 <= self.grid <= 1000, f"grid={self.grid}: needs 2 to 1000 steps")
        require(0 <= self.deadzone < 1, f"deadzone={self.deadzone}: needs 0 up to, not including, 1")
        require(0 < self.clamp < 0.5, f"clamp={self.clamp}: needs a number above 0 and below 0.5")

    @property
    def largest(self) -> int:
        return self.grid

    def nearest(self, values: NDArray[Any]) -> Levels:
        levels: Levels = np.rint(values * self.grid).astype(np.uint16)
        return levels

    def values(self, levels: Levels) -> NDArray[np.float64]:
        return levels / self.grid

    def thresholds(self, levels: Levels) -> Thresholds:
        clamp = round(self.clamp * MILLION)
        table = thresholds_of_counts(self.grid, "mode", clamp_numerator=clamp, clamp_denominator=MILLION)
        return take(table, levels)

    def within(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return theta.clip(self.clamp, 1 - self.clamp)


def check_server_rate(rate: float) -> None:
    require(0 < rate < 100, f"server_rate={rate}: needs a number above 0, below 100")


class GridChanges:
    """Receivers hold levels. `name` is the part, `vector` the server's values in its state, `start` returns the initial
    values, which follow from the configuration alone."""

    def __init__(self, grid: Grid, size: int, name: str, vector: str, start: Callable[[], NDArray[Any]]) -> None:
        self.grid, self.size, self.name, self.vector, self.start = grid, size, name, vector, start

    def first(self) -> Held:
        return {LEVELS: self.grid.nearest(self.start())}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        values, old = np.asarray(state[self.vector]), held[LEVELS]
        new = np.empty_like(old)
        for start in range(0, old.size, PIECE):
            piece = slice(start, start + PIECE)
            far = np.abs(values[piece] - self.grid.values(old[piece])) >= self.grid.deadzone
            new[piece] = np.where(far, self.grid.nearest(values[piece]), old[piece])
        return {self.name: Counts(self.grid.largest, new)}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        return self.restore(payloads)

    def snapshot_parts(self) -> tuple[Part, ...]:
        return (Part(self.name, make_codec("counts"), self.size),)

    def snapshot(self, held: Held) -> Payloads:
        return {self.name: Counts(self.grid.largest, held[LEVELS])}

    def restore(self, payloads: Payloads) -> Held:
        return {LEVELS: payloads[self.name].values}

    def shared(self, held: Held | None) -> Shared:
        """What both sides know about a broadcast: the previous levels; for a snapshot, nothing."""
        reference = None if held is None else Counts(self.grid.largest, held[LEVELS])
        return Shared(self.size, limit=self.grid.largest, reference=reference)
