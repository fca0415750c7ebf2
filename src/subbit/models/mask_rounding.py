"""The mask that responds most like a moved matrix: W0 * m near W, m in {0, 1}.

Keeping the weights with W / W0 >= 1/2 would keep nearly all of them, since training moves weights by a few percent. But
many small weights that are dropped together can do what W does to the inputs. So each row of m makes

    e H e',   e = w0 * m - w

small, where H says how much an error along each input matters. The inputs themselves are on the clients. A layer
responds most to what it gets most, so its own start is the guide: H = (W0' W0)^1/2, scaled to a mean diagonal of 1,
plus `RIDGE`. From m = 1 on, the bit that is visited changes if that makes the error smaller, until none does or after
`PASSES` visits of all: the result is never farther from W than the start is.

Every machine finds the mask by itself, from weights that it knows. Decisions are made in float64; two machines that
round differently can only disagree where both bits are as good.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.devices import host
from subbit.core.jit import njit

RIDGE = 0.1
PASSES = 6
ROWS = 256
"""Rounded at a time, so that intermediate results stay small."""

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]


def rounded(start: Tensor, moved: Tensor) -> Tensor:
    """Start times the mask: the matrices are [outputs, ...]."""
    before, after = _as_matrix(start), _as_matrix(moved)
    kept = find_mask(before, after, metric(before))
    return start * torch.from_numpy(kept).to(start.device).view_as(start)


def _as_matrix(weights: Tensor) -> Matrix:
    return host(weights.detach()).reshape(weights.shape[0], -1).astype(np.float64)


def metric(start: Matrix) -> Matrix:
    """How much an error along each pair of inputs matters."""
    # From the smaller side: (W' W)^1/2 = W' (W W')^-1/2 W.
    wide = start.shape[0] < start.shape[1]
    values, vectors = np.linalg.eigh(start @ start.T if wide else start.T @ start)
    known = values > values[-1] * 1e-12
    if not known.any():  # No weight, nothing to keep.
        return np.eye(start.shape[1])
    values, vectors = values[known], vectors[:, known]
    if wide:
        found: Matrix = (start.T @ (vectors * values**-0.5)) @ (vectors.T @ start)
    else:
        found = (vectors * values**0.5) @ vectors.T
    found *= len(found) / np.trace(found)
    found[np.diag_indices_from(found)] += RIDGE
    return found


def find_mask(start: Matrix, moved: Matrix, weights: Matrix) -> Mask:
    kept = np.ones(start.shape, dtype=np.bool_)
    order = np.argsort(-np.diag(weights), kind="stable")
    for first in range(0, len(start), ROWS):
        rows = slice(first, first + ROWS)
        _descend(start[rows], (start[rows] - moved[rows]) @ weights, weights, order, kept[rows], PASSES)
    return kept


@njit
def _descend(start: Matrix, slopes: Matrix, weights: Matrix, order: NDArray[np.int64], kept: Mask, passes: int) -> None:
    """`slopes` are e H for every row; `kept` is written."""
    for row in range(start.shape[0]):
        slope = slopes[row]
        for _ in range(passes):
            changes = 0
            for place in order:
                change = -start[row, place] if kept[row, place] else start[row, place]
                if change * (2.0 * slope[place] + change * weights[place, place]) < 0.0:
                    kept[row, place] = not kept[row, place]
                    changes += 1
                    for other in range(slope.size):
                        slope[other] += change * weights[place, other]
            if changes == 0:
                break
