"""Averages LoRA's low-rank changes themselves instead of their factors.

A client's LoRA changes a layer by B_k A_k. mean(B_k) mean(A_k) differs from mean(B_k A_k). The mean of the products has
a higher rank, up to clients times r; its best approximation of rank r is kept: the r largest singular directions
(Eckart and Young, 1936).

    U S V' ~ mean_k(B_k A_k)        B = sqrt(3) U S        A = V' / sqrt(3)

The rows of A have about the norm of LoRA's initialisation, 1 / sqrt(3), and are never zero: if the mean has a lower
rank than r, B has zeros and the direction can still be learned, as at the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.models.template import Template

DOWN, UP = ".lora_A.", ".lora_B."
LENGTH = 1 / math.sqrt(3)


@dataclass(frozen=True)
class Factors:
    """Positions of one layer's two factors in a flat vector."""

    down: slice
    up: slice
    rank: int
    inputs: int
    outputs: int

    def product(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """B A, [outputs, inputs]."""
        up, down = vector[self.up].reshape(self.outputs, self.rank), vector[self.down].reshape(self.rank, self.inputs)
        result: NDArray[np.float64] = up @ down
        return result

    def write(self, product: NDArray[np.float64], vector: NDArray[np.float64]) -> None:
        """Write the factors of the best rank-r approximation of the product into the vector."""
        left, sizes, right = np.linalg.svd(product.reshape(self.outputs, self.inputs), full_matrices=False)
        vector[self.up] = (left[:, : self.rank] * (sizes[: self.rank] / LENGTH)).reshape(-1)
        vector[self.down] = (right[: self.rank] * LENGTH).reshape(-1)


def find_factors(template: Template) -> list[Factors]:
    places = {
        name: (slice(offset, offset + count), shape)
        for name, offset, count, shape in zip(
            template.names, template.offsets, template.counts, template.shapes, strict=True
        )
    }
    found = []
    for name, (down, (rank, *inputs)) in ((name, places[name]) for name in places if DOWN in name):
        up, (outputs, *_) = places[name.replace(DOWN, UP)]
        # Of a convolution: channels times places of the kernel.
        found.append(Factors(down, up, rank, math.prod(inputs), outputs))
    return found


def products(factors: list[Factors], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """The products of all layers, concatenated."""
    return np.concatenate([layer.product(vector).reshape(-1) for layer in factors])


def with_products(
    factors: list[Factors], vector: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The vector with its factors replaced by those of the wanted products."""
    result = vector.copy()
    ends = np.cumsum([layer.outputs * layer.inputs for layer in factors])[:-1]
    for layer, product in zip(factors, np.split(wanted, ends), strict=True):
        layer.write(product, result)
    return result
