"""The mask that responds most like a moved matrix: W0 * m near W, m in {0, 1}.

Keeping the weights with W / W0 >= 1/2 would keep nearly all of them, since training moves weights by a few percent. But
many small weights that are dropped together can do what W does to the inputs. So each row of m, which makes one output,
makes

    e H e'  small,   e = w0 * m - w,

where H says how much an error along each pair of inputs matters. The inputs themselves are on the clients. A trained
layer tends to respond most to what it sees most, so its own start is the guide: H = (W0' W0)^1/2, scaled to a mean
diagonal of 1, plus `RIDGE`. From m = 1 on, the bit that is visited changes if that makes the error smaller, until none
does or after `PASSES` visits of all: in this measure the result is never farther from W than the start is.

Every machine finds the mask by itself, from weights that it knows, in float64. Where two machines round differently, a
row may end in another mask that is about as good; nothing that is sent depends on it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.jit import njit

RIDGE = 0.1
PASSES = 6
ROWS = 256
"""Rounded at a time, so that intermediate results stay small."""
MOST_INPUTS = 2048
"""More are rounded in blocks of so many, which know nothing of each other: H has the square of their number."""

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]


def find_mask(start: Tensor, moved: Tensor) -> Tensor | None:
    """Which weights are kept, for matrices [outputs, inputs]; none if the moved one is not finite."""
    before, after = start.detach().cpu().double(), moved.detach().cpu().double()
    if not bool(torch.isfinite(after).all()):
        return None
    kept = torch.empty(before.shape, dtype=torch.bool)
    for first in range(0, before.shape[1], MOST_INPUTS):
        block = slice(first, first + MOST_INPUTS)
        kept[:, block] = nearest(before[:, block].contiguous(), after[:, block], metric(before[:, block]))
    return kept


def metric(start: Tensor) -> Tensor:
    """How much an error along each pair of inputs matters."""
    # From the smaller side: (W' W)^1/2 = W' (W W')^-1/2 W. By torch, whose threads are part of the configuration.
    wide = start.shape[0] < start.shape[1]
    values, vectors = torch.linalg.eigh(start @ start.T if wide else start.T @ start)
    known = values > values[-1] * 1e-12
    if not bool(known.any()):  # No weight, nothing to keep.
        return torch.eye(start.shape[1], dtype=torch.float64)
    values, vectors = values[known], vectors[:, known]
    if wide:
        found = (start.T @ (vectors * values**-0.5)) @ (vectors.T @ start)
    else:
        found = (vectors * values**0.5) @ vectors.T
    found *= len(found) / found.trace()
    found.diagonal().add_(RIDGE)
    weights: Tensor = found
    return weights


def nearest(start: Tensor, moved: Tensor, weights: Tensor) -> Tensor:
    """A mask at which no single bit is better."""
    kept = torch.ones(start.shape, dtype=torch.bool)
    order = torch.argsort(weights.diagonal(), descending=True, stable=True)
    for first in range(0, len(start), ROWS):
        rows = slice(first, first + ROWS)
        slopes = (start[rows] - moved[rows]) @ weights
        _descend(start[rows].numpy(), slopes.numpy(), weights.numpy(), order.numpy(), kept[rows].numpy(), PASSES)
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
