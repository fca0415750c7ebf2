"""A custom aggregator: the geometric median.

    subbit check examples/geometric_median.py
    subbit run --plugin examples/geometric_median.py method=fedavg aggregator=geometric-median

Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning", IEEE TSP 2022. The vector with the smallest
sum of distances to the clients' changes, by Weiszfeld's iteration. It is robust against a minority of malicious
clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subbit import register


@register("aggregator", "geometric-median")
@dataclass(frozen=True)
class GeometricMedian:
    """Geometric median of the clients' changes. The fields are keys of the configuration."""

    iterations: int = 50

    def accumulator(self, size: int) -> Vectors:
        return Vectors(size, self.iterations)


class Vectors:
    """Keeps the vectors of a round, since every iteration needs all of them."""

    order_free = False

    def __init__(self, size: int, iterations: int) -> None:
        self.size, self.iterations = size, iterations
        self.vectors: list[np.ndarray] = []
        self.weights: list[float] = []

    def add(self, vector: np.ndarray, weight: float) -> None:
        if weight:
            self.vectors.append(np.array(vector, dtype=np.float32))
            self.weights.append(weight)

    def mean(self) -> np.ndarray:
        if not self.vectors:
            return np.zeros(self.size)
        weights = np.array(self.weights)
        median = self._average(weights)
        for _ in range(self.iterations):
            distances = np.array([np.linalg.norm(vector - median) for vector in self.vectors])
            median = self._average(weights / np.maximum(distances, 1e-6))
        return median

    def _average(self, weights: np.ndarray) -> np.ndarray:
        total = sum(weight * vector.astype(np.float64) for weight, vector in zip(weights, self.vectors, strict=True))
        return total / weights.sum()
