"""A matrix that mixes the inputs it uses most: W = W0 (1 + V R V').

V holds the input directions to which W0 responds most, its first right singular vectors up to a rotation, so R with few
values moves what the layer already computes, in units of itself: 0.01 on the diagonal makes the response along one of
them 1% larger. It is LoRA-XS (Balazy et al., 2024) with the left factor W0 V instead of one of its own.

V comes from a seeded start by power iteration, not from a singular value decomposition: signs and equal singular values
leave that open, and machines would disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs.sampler import uniforms
from subbit.core.devices import host

ITERATIONS = 2
MOST_DIRECTIONS = 128
"""Of one matrix."""
LEAST_NORM = 1e-3
"""Of a direction in use, relative to a usual one."""


@dataclass(frozen=True)
class Directions:
    """Those of one matrix, in the order in which it responds to them."""

    left: Tensor
    """W0 V, [outputs, directions]."""
    right: Tensor
    """V', [directions, inputs]."""
    norms: NDArray[np.float64]
    """How strongly it responds to each: |W0 v|."""

    def evened(self) -> Directions:
        """With longer steps in the directions to which it responds weakly: |W0 v| becomes its geometric mean with that
        of a usual direction."""
        usual = math.sqrt(float(np.mean(np.square(self.norms))))
        factors = np.sqrt(usual / np.maximum(self.norms, LEAST_NORM * usual))
        return replace(self, left=self.left * torch.from_numpy(factors.astype(np.float32)).to(self.left.device))


@dataclass(frozen=True)
class Mixing:
    """Consecutive weights, read as a matrix, and the values of R that move them."""

    rows: slice
    """Of the flat vector."""
    columns: slice
    """Of the trained vector."""
    left: Tensor
    """W0 V, [outputs, directions]."""
    right: Tensor
    """V', [directions, inputs]."""
    places: Tensor
    """Of the values in R, flattened."""

    def add(self, values: Tensor, weights: Tensor) -> None:
        """weights += W0 V R V'."""
        mixing = torch.zeros(self.left.shape[1] ** 2, device=values.device)
        mixing[self.places] = values[self.columns]
        matrix = weights[self.rows].view(self.left.shape[0], self.right.shape[1])
        matrix.addmm_(self.left @ mixing.view(self.left.shape[1], -1), self.right)

    def pull_back(self, gradient: Tensor, out: Tensor) -> None:
        """out += (W0 V)' G V, at the places of R that have a value."""
        slope = gradient[self.rows].view(self.left.shape[0], self.right.shape[1])
        found = self.left.T @ (slope @ self.right.T)
        out[self.columns].add_(found.flatten()[self.places])


def most_directions(shape: tuple[int, ...]) -> int:
    """How many directions a tensor of this shape can have; 0 if it is not a matrix."""
    if len(shape) < 2:
        return 0
    outputs, inputs = shape[0], int(np.prod(shape[1:]))
    return min(outputs, inputs, MOST_DIRECTIONS)


def share_values(most: list[int], values: int) -> list[NDArray[np.int64]]:
    """For each matrix the places (i, j) of R that get a value, those of the first directions first: [count, 2]."""
    rank = 0
    while rank < max(most, default=0) and sum(min(rank + 1, each) ** 2 for each in most) <= values:
        rank += 1
    left = values - sum(min(rank, each) ** 2 for each in most)
    found = []
    for each in most:
        square = min(rank, each)
        places = [(i, j) for i in range(square) for j in range(square)]
        if each > rank and left > 0:
            ring = [(rank, rank), *((i, rank) for i in range(rank)), *((rank, j) for j in range(rank))][:left]
            places, left = places + ring, left - len(ring)
        found.append(np.array(places, dtype=np.int64).reshape(-1, 2))
    return found


def find_directions(matrix: Tensor, count: int, key: int) -> Directions:
    left, right, norms = dominant_inputs(host(matrix.detach()).reshape(matrix.shape[0], -1), count, key)
    return Directions(torch.from_numpy(left).to(matrix.device), torch.from_numpy(right).to(matrix.device), norms)


def place_mixing(rows: slice, columns: slice, found: Directions, places: NDArray[np.int64]) -> Mixing:
    left, right = found.left, found.right
    where = torch.from_numpy(places[:, 0] * len(right) + places[:, 1]).to(left.device)
    return Mixing(rows, columns, left, right, where)


def dominant_inputs(
    matrix: NDArray[np.float32], count: int, key: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """W0 V, V', and the norms of the former's columns."""
    exact = matrix.astype(np.float64)
    found = uniforms(key, 0, exact.shape[1] * count).reshape(-1, count) / 2.0**31 - 1.0
    for _ in range(ITERATIONS):
        found = _orthonormal(exact.T @ (exact @ _orthonormal(found)))
    left = exact @ found
    norms: NDArray[np.float64] = np.linalg.norm(left, axis=0)
    return left.astype(np.float32), np.ascontiguousarray(found.T, dtype=np.float32), norms


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The basis with the same nested spans whose triangular factor has a positive diagonal: there is only one."""
    basis, triangular = np.linalg.qr(columns)
    signs: NDArray[np.float64] = np.where(np.diagonal(triangular) < 0, -1.0, 1.0)
    return basis * signs
