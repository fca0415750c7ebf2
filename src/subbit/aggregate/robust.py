"""Averages of real vectors that are robust against a minority of malicious clients.

Yin, Chen, Kannan, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018
(trimmed mean and median); Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019 (norm
clipping).

    trimmed mean  at each position, drop the fraction `trim` of the largest and of the smallest values, average the
                  rest; with a fraction of malicious clients up to `trim` the result lies between honest values
    median        the trimmed mean that drops as much as possible: one or two values remain
    clipping      v * min(1, bound / |v|), as vectors arrive; one of K clients moves the mean by at most 2 bound / K

A client that sends a false vector may also send a false weight, so all three give every client the same weight. Sums
cannot be trimmed: the trimmed mean keeps all vectors of a round, 4 bytes per value and participant. The other
accumulators and clipping keep one vector, however many arrive.

A mask consists of zeros and ones, so one of K clients moves a mean of masks by at most 1 / K whatever it sends. That
bounds one malicious client, not many over many rounds. The trimmed mean of masks is a function of the count of ones and
needs no extra memory.

Most values of a sparse change are zero, and a zero counts like any other value, as a vote for no change. So a position
changes only if more than the fraction `trim` of the clients move it in the same direction. This prevents malicious
clients from moving it alone, but also suppresses changes that only a few honest clients make. If changes are so sparse
that few positions are changed by more than one client, it is easier to detect whole clients:

    agreement     drop the fraction `trim` of the clients whose signs agree least with the signs of the others, average
                  the rest; valid as long as honest clients agree more with one another than with malicious ones
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Counts

MEDIAN = 0.5
PIECE = 1 << 14  # Positions sorted at a time, so that the copy for sorting stays small.


class TrimmedMean:
    """Sorts the values, so the order of the clients cannot change the result."""

    order_free = True

    def __init__(self, size: int, trim: float) -> None:
        self.size, self.trim = size, trim
        self.vectors: list[NDArray[np.float32]] = []

    def add(self, vector: NDArray[Any], weight: float) -> None:
        """Keep a vector. One without weight, from a client without data, is left out."""
        if weight:
            # Adding zero turns -0.0 into 0.0. They compare equal, so sorting would keep them in the order of arrival.
            self.vectors.append(np.add(vector, np.float32(0), dtype=np.float32))

    def mean(self) -> NDArray[np.float64]:
        """The trimmed mean; zero if nothing with a weight was added."""
        mean = np.zeros(self.size, dtype=np.float64)
        dropped = dropped_per_end(len(self.vectors), self.trim)
        kept = slice(dropped, len(self.vectors) - dropped)
        for start in range(0, self.size if self.vectors else 0, PIECE):
            piece = np.stack([vector[start : start + PIECE] for vector in self.vectors])
            piece.sort(axis=0)
            mean[start : start + PIECE] = piece[kept].mean(axis=0, dtype=np.float64)
        return mean


class AgreeingMean:
    """Keeps the vectors of a round, but only their nonzero values."""

    order_free = False

    def __init__(self, size: int, trim: float) -> None:
        self.size, self.trim = size, trim
        self.changes: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def add(self, vector: NDArray[Any], weight: float) -> None:
        """Keep a vector. One without weight is left out."""
        if weight:
            places = np.flatnonzero(vector)
            self.changes.append((places, vector[places]))

    def agreements(self) -> list[float]:
        """For each client: the number of others with the same sign minus those with the opposite sign, averaged over
        the positions that the client changes; 0 if it changes none.
        """
        votes = np.zeros(self.size, dtype=np.int64)
        signs = [np.sign(values).astype(np.int64) for _, values in self.changes]
        for (places, _), sign in zip(self.changes, signs, strict=True):
            votes[places] += sign
        return [
            float(np.dot(votes[places], sign) - sign.size) / max(1, sign.size)
            for (places, _), sign in zip(self.changes, signs, strict=True)
        ]

    def mean(self) -> NDArray[np.float64]:
        """Mean over the clients that agree most; zero if nothing with a weight was added."""
        mean = np.zeros(self.size, dtype=np.float64)
        kept = len(self.changes) - dropped_per_end(len(self.changes), self.trim)
        agreements = np.array(self.agreements())
        for client in np.sort(np.argsort(-agreements, kind="stable")[:kept]):
            places, values = self.changes[client]
            mean[places] += values
        return mean / max(1, kept)


def dropped_per_end(count: int, trim: float) -> int:
    """ceil(trim count), but never everything. Rounding down would leave three clients at trim 0.1 unprotected.

    >>> dropped_per_end(10, 0.1), dropped_per_end(3, 0.1), dropped_per_end(9, MEDIAN), dropped_per_end(10, MEDIAN)
    (1, 1, 4, 4)
    """
    return min(math.ceil(Fraction(str(trim)) * count), max(0, count - 1) // 2)


def trimmed_counts(counts: Counts, trim: float) -> Counts:
    """Counts after dropping `dropped_per_end` of the sorted bits of each position at each end.

    Of M ones among K bits, t zeros and t ones are dropped: min(max(M - t, 0), K - 2 t) ones remain among K - 2 t. If a
    fraction `trim` of the clients sends the opposite of its true bit, M / K = trim + (1 - 2 trim) theta, and the
    trimmed mean is theta again.
    """
    dropped = dropped_per_end(counts.total, trim)
    left = counts.total - 2 * dropped
    ones = np.minimum(np.maximum(counts.values, dropped) - dropped, left).astype(np.uint16)
    return Counts(left, ones)


def clip_to_norm(vector: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """Scale the vector down to norm `bound` if its norm is larger."""
    norm = math.sqrt(np.dot(vector, vector.astype(np.float64)))
    return vector if norm <= bound else (vector * (bound / norm)).astype(np.float32)
