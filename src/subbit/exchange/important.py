"""Uploads the most important score changes of a mask: their places, their signs, and one common magnitude.

Importance is the Kullback-Leibler divergence of the mask before and after, to second order: theta (1 - theta)
change^2 / 2. (The exact divergence is asymmetric: near theta = 1 it prefers every step down to any step up.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Shared, Vector
from subbit.codecs.sampler import uniforms
from subbit.codecs.ternary import Ternary
from subbit.core.errors import PayloadError
from subbit.core.values import require
from subbit.wire.frame import HEADER_BYTES

LEAST_BITS = 8 * (HEADER_BYTES + 64)
LEAST_PLACES = 256
"""Minimum for uploads without a budget: for a small network, the share would be a few bytes after a header of forty."""


@dataclass(frozen=True)
class ImportantUp:
    codec: ClassVar[Ternary] = Ternary(fraction=None)
    share: float = 0.0008
    """Share of the places in an upload."""
    bits_per_round: int | None = None
    """Instead of `share`: the size of one upload in bits, header included."""
    order: Literal["kl", "magnitude", "random"] = "kl"
    """Which places are sent: largest divergence of the mask, largest change of the score, or random ones."""
    residuals: bool = True
    """Add what is not sent to the client's next change (error feedback)."""

    def __post_init__(self) -> None:
        budget = self.bits_per_round
        require(0 < self.share <= 1, f"share={self.share}: needs a share above 0, at most 1")
        require(
            budget is None or budget >= LEAST_BITS, f"bits_per_round={budget}: needs at least {LEAST_BITS}, or none"
        )

    def chosen(self, change: Vector, before: Vector, key: int) -> Vector:
        """What is sent of a change of the scores; a random choice is drawn from the key."""
        budget = self.bits_per_round
        ranked = self.ranked(change, before, key, None if budget else self.most_places(change.size))
        return self._within_budget(change, ranked, budget) if budget else ternary(change, ranked)

    def ranked(self, change: Vector, before: Vector, key: int, most: int | None = None) -> NDArray[np.int64]:
        """Places whose score changed, most important first, at most `most`; ties go to the lower index, so that every
        machine ranks alike."""
        places = np.flatnonzero(change)
        importance = np.abs(change[places])
        if self.order == "kl":
            theta = 1 / (1 + np.exp(-before[places].astype(np.float64)))
            importance = theta * (1 - theta) * importance.astype(np.float64) ** 2
        elif self.order == "random":
            importance = uniforms(key, 0, len(places))
        importance = importance.astype(np.float64)
        if most is not None and most < len(places):
            # Sorting all places to take a thousandth of them would take half of a turn.
            enough = importance >= np.partition(importance, -most)[-most]
            places, importance = places[enough], importance[enough]
        return places[np.argsort(-importance, kind="stable")][:most]

    def _within_budget(self, change: Vector, ranked: NDArray[np.int64], bits: int) -> Vector:
        """As many places as fit. The code length is not a simple function of their number, so it is found by
        bisection."""
        fitting, beyond = 0, len(ranked) + 1
        while beyond - fitting > 1:
            middle = (fitting + beyond) // 2
            fits = self.upload_bits(ternary(change, ranked[:middle])) <= bits
            fitting, beyond = (middle, beyond) if fits else (fitting, middle)
        return ternary(change, ranked[:fitting])

    def most_places(self, size: int) -> int:
        """Limit for an upload without a budget."""
        return max(LEAST_PLACES, round(self.share * size))

    def upload_bits(self, sent: Vector) -> int:
        return 8 * (HEADER_BYTES + len(self.codec.encode(sent, Shared(sent.size))))

    def check(self, sent: Vector) -> None:
        """Reject an upload with more places than an honest client would send."""
        places, budget, most = np.count_nonzero(sent), self.bits_per_round, self.most_places(sent.size)
        if budget is None and places > most:
            raise PayloadError(f"changes of {places} places, at most {most} fit `share`", "value")
        if budget is not None and self.upload_bits(sent) > budget:
            raise PayloadError(f"changes of {places} places do not fit bits_per_round={budget}", "value")


def ternary(change: Vector, places: NDArray[np.int64]) -> Vector:
    """The signs of the change at these places, times the mean of their magnitudes; zero elsewhere."""
    vector = np.zeros_like(change)
    if places.size:
        vector[places] = np.sign(change[places]) * np.float32(np.abs(change[places].astype(np.float64)).mean())
    return vector
