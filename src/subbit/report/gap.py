"""How much of the way from the floor to the ceiling a score is, and which scores are equal.

The floor is the best result without federated training of the features: a head fitted on them, or the network as it
is, or every client alone. The ceiling is training in one place on all clients' examples. With the level of a score

    share of the gap closed = (level - floor) / (ceiling - floor)

The level is the score itself; for a perplexity its logarithm, the loss, since equal steps of the loss are equal steps
for a language model. The formula is the same where lower is better: both differences change their sign.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subbit.report.frontier import scores_by_round

EQUAL = 2.0
"""Two means are equal unless they differ by more than this many standard deviations, those of both pooled."""
GAP = 1.0
"""A ceiling that is less than this many pooled standard deviations better than the floor leaves nothing to measure."""


def level(score: float, score_name: str) -> float:
    return math.log(score) if score_name == "perplexity" else score


@dataclass(frozen=True)
class Level:
    """Mean and standard deviation of levels over seeds."""

    mean: float
    spread: float = 0.0

    @classmethod
    def of(cls, scores: Sequence[float], score_name: str) -> Level:
        levels = [level(score, score_name) for score in scores]
        return cls(statistics.fmean(levels), statistics.stdev(levels) if len(levels) > 1 else 0.0)


def pooled_spread(one: Level, other: Level) -> float:
    return math.sqrt((one.spread**2 + other.spread**2) / 2)


def equal(one: Level, other: Level) -> bool:
    """Whether the seeds do not tell them apart."""
    return abs(one.mean - other.mean) <= EQUAL * pooled_spread(one, other)


def best(levels: Sequence[Level], higher: bool) -> Level:
    return (max if higher else min)(levels, key=lambda each: each.mean)


@dataclass(frozen=True)
class Gap:
    floor: Level
    ceiling: Level
    score_name: str
    higher: bool

    @property
    def width(self) -> float | None:
        """None where the ceiling is not above the floor by more than their spread: then there is no gap to close."""
        found = self.ceiling.mean - self.floor.mean
        above = found if self.higher else -found
        return found if above > 0 and above >= GAP * pooled_spread(self.floor, self.ceiling) else None

    def share(self, mean: float) -> float | None:
        """The share of the gap that a mean level closes; below 0 it is worse than the floor, above 1 better than
        training in one place."""
        return None if self.width is None else (mean - self.floor.mean) / self.width

    def share_of(self, score: float) -> float | None:
        return self.share(level(score, self.score_name))

    def bytes_until(self, share: float, summary: Mapping[str, Any]) -> int | None:
        """Bytes both ways, one-off costs included, up to the first round that closes this share of the gap."""
        for score, total in zip(scores_by_round(summary), summary["bytes_by_round"], strict=True):
            found = None if score is None else self.share_of(score)
            if found is not None and found >= share:
                return int(total)
        return None

    def mean_bytes_until(self, share: float, summaries: Sequence[Mapping[str, Any]]) -> float | None:
        """The mean over seeds; none unless all of them get there."""
        found = [self.bytes_until(share, summary) for summary in summaries]
        return None if None in found else statistics.fmean(each for each in found if each is not None)
