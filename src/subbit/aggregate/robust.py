"""Averages of real vectors that a minority of liars cannot drag away.

Yin, Chen, Kannan, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018
(trimmed mean and median); Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019 (norm
clipping).

    trimmed mean  at each place, drop the share `trim` of the largest and of the smallest values, average the rest;
                  a share of liars up to `trim` leaves the result between values of honest clients
    median        the trimmed mean that drops all it can: one value stays, or two
    clipping      v * min(1, bound / |v|), as vectors arrive; one of K clients moves the mean by at most 2 bound / K

Whoever lies about a vector may lie about its weight, so all three give every client the same weight. Sums cannot be
trimmed: the trimmed mean keeps the vectors of a round, 4 bytes for each value of each participant, where the other
accumulators and clipping keep one vector however many arrive.

A mask is zeros and ones, so one of K clients moves a mean of masks by at most 1 / K whatever it sends. That bounds one
liar, not many over many rounds; the trimmed mean of masks is a function of the count of ones, and costs no memory.

Of a sparse change most values are zero, and a zero counts as any other value does: who says nothing about a place wants
it to stay. So a place moves only if a larger share than `trim` wants it to move the same way. That is what keeps liars
from moving it by themselves, and what it costs is changes that few honest clients ask for. Where changes are so sparse
that hardly any place has several names on it, whole clients are easier to tell apart:

    agreement     drop the share `trim` of the clients whose signs agree least with the signs of the others, average the
                  rest; sound as long as honest clients agree more with one another than with liars
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Counts

MEDIAN = 0.5
PIECE = 1 << 14  # Places that are sorted at a time: what is copied for sorting stays small beside what is kept.


class TrimmedMean:
    """Sorting forgets the order of arrival, so the order of the clients cannot change a bit."""

    order_free = True

    def __init__(self, size: int, trim: float) -> None:
        self.size, self.trim = size, trim
        self.vectors: list[NDArray[np.float32]] = []

    def add(self, vector: NDArray[Any], weight: float) -> None:
        """Keep a vector; one without weight, of a client without data, is no opinion and is left out."""
        if weight:
            # Adding zero makes -0.0 a 0.0: they compare equal, so sorting would keep the order in which they came.
            self.vectors.append(np.add(vector, np.float32(0), dtype=np.float32))

    def mean(self) -> NDArray[np.float64]:
        """The trimmed mean; zero when nothing with a weight was added."""
        mean = np.zeros(self.size, dtype=np.float64)
        dropped = dropped_per_end(len(self.vectors), self.trim)
        kept = slice(dropped, len(self.vectors) - dropped)
        for start in range(0, self.size if self.vectors else 0, PIECE):
            piece = np.stack([vector[start : start + PIECE] for vector in self.vectors])
            piece.sort(axis=0)
            mean[start : start + PIECE] = piece[kept].mean(axis=0, dtype=np.float64)
        return mean


class AgreeingMean:
    """Keeps the vectors of a round, but of each only what is not zero."""

    order_free = False

    def __init__(self, size: int, trim: float) -> None:
        self.size, self.trim = size, trim
        self.changes: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def add(self, vector: NDArray[Any], weight: float) -> None:
        """Keep a vector; one without weight is no opinion and is left out."""
        if weight:
            places = np.flatnonzero(vector)
            self.changes.append((places, vector[places]))

    def agreements(self) -> list[float]:
        """Of each client: how many others say the same of a place that it speaks of, less those who say the opposite,
        on average over these places; 0 of one that says nothing."""
        votes = np.zeros(self.size, dtype=np.int64)
        signs = [np.sign(values).astype(np.int64) for _, values in self.changes]
        for (places, _), sign in zip(self.changes, signs, strict=True):
            votes[places] += sign
        return [
            float(np.dot(votes[places], sign) - sign.size) / max(1, sign.size)
            for (places, _), sign in zip(self.changes, signs, strict=True)
        ]

    def mean(self) -> NDArray[np.float64]:
        """Of those that agree most; zero when nothing with a weight was added."""
        mean = np.zeros(self.size, dtype=np.float64)
        kept = len(self.changes) - dropped_per_end(len(self.changes), self.trim)
        agreements = np.array(self.agreements())
        for client in np.sort(np.argsort(-agreements, kind="stable")[:kept]):
            places, values = self.changes[client]
            mean[places] += values
        return mean / max(1, kept)


def dropped_per_end(count: int, trim: float) -> int:
    """ceil(trim count) but never all: rounding down would leave three clients at trim 0.1 without any protection.

    >>> dropped_per_end(10, 0.1), dropped_per_end(3, 0.1), dropped_per_end(9, MEDIAN), dropped_per_end(10, MEDIAN)
    (1, 1, 4, 4)
    """
    return min(math.ceil(Fraction(str(trim)) * count), max(0, count - 1) // 2)


def trimmed_counts(counts: Counts, trim: float) -> Counts:
    """The count of what is left when `dropped_per_end` of the sorted bits of each place are dropped at each end.

    Of M ones among K bits, t zeros go and t ones: min(max(M - t, 0), K - 2 t) ones are left among K - 2 t. Where a
    share `trim` of the clients sends the opposite of what it believes, M / K = trim + (1 - 2 trim) theta, and the
    trimmed mean is theta again.
    """
    dropped = dropped_per_end(counts.total, trim)
    left = counts.total - 2 * dropped
    ones = np.minimum(np.maximum(counts.values, dropped) - dropped, left).astype(np.uint16)
    return Counts(left, ones)


def clip_to_norm(vector: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """The vector itself, or the one of norm `bound` that points where it points."""
    norm = math.sqrt(np.dot(vector, vector.astype(np.float64)))
    return vector if norm <= bound else (vector * (bound / norm)).astype(np.float32)
