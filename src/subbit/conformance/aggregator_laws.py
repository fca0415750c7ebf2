"""Laws of aggregators: weighted vectors are added one by one, one vector is returned.

accumulator(size)         accumulates the vectors of one round, `size` values each
add(vector, weight)       float32, and the client's weight; 0 for a client without data
mean()                    float64
order_free                whether the mean is independent of the order of additions, bit for bit
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.conformance.laws import Laws, demand

law = Laws()
SIZE = 40


def _vectors(count: int = 7, seed: int = 0) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(SIZE).astype(np.float32) for _ in range(count)]


def _mean(aggregator: Any, vectors: list[NDArray[np.float32]], weights: list[float] | None = None) -> NDArray[Any]:
    made = aggregator().accumulator(SIZE)
    for vector, weight in zip(vectors, weights or [1.0] * len(vectors), strict=True):
        made.add(vector, weight)
    mean: NDArray[Any] = made.mean()
    return mean


@law("the mean is as many finite numbers as went in, and zero where nothing did")
def has_form(aggregator: Any) -> None:
    for vectors in (_vectors(), _vectors(1), []):
        mean = _mean(aggregator, vectors)
        demand(isinstance(mean, np.ndarray) and mean.shape == (SIZE,), f"mean() of {len(vectors)}: not {SIZE} values")
        demand(np.isfinite(mean).all(), f"mean() of {len(vectors)} vectors holds numbers that are not finite")
    demand(not mean.any(), "mean() of nothing is not zero")


@law("vectors that are all the same are their own mean")
def keeps_what_all_say(aggregator: Any) -> None:
    vector = _vectors()[0]
    demand(np.allclose(_mean(aggregator, [vector] * 5), vector, rtol=1e-4, atol=1e-5), "it is another vector")


@law("a client without weight has no say")
def ignores_no_weight(aggregator: Any) -> None:
    vectors = _vectors()
    without = _mean(aggregator, vectors)
    loud = [*vectors, np.full(SIZE, 1e6, np.float32)]
    same = np.array_equal(without, _mean(aggregator, loud, [1.0] * len(vectors) + [0.0]))
    demand(same, "a vector of weight 0 changes the mean")


@law("it stays between the smallest and the largest value of each place")
def stays_between(aggregator: Any) -> None:
    together = np.stack(_vectors())
    mean, slack = _mean(aggregator, list(together)), 1e-4
    inside = (mean >= together.min(axis=0) - slack) & (mean <= together.max(axis=0) + slack)
    demand(inside.all(), f"{int((~inside).sum())} of {SIZE} places lie outside")


@law("it changes no vector that it is given, and the order only where it says so")
def keeps_its_word(aggregator: Any) -> None:
    vectors = _vectors()
    before = [vector.copy() for vector in vectors]
    forth, back = _mean(aggregator, vectors), _mean(aggregator, vectors[::-1])
    demand(all(map(np.array_equal, vectors, before)), "a vector was changed")
    demand(np.array_equal(forth, _mean(aggregator, vectors)), "the same vectors have another mean the second time")
    demand(np.allclose(forth, back, rtol=1e-3, atol=1e-4), "another order gives another mean")
    if aggregator().accumulator(SIZE).order_free:
        demand(np.array_equal(forth, back), "order_free is True, but the order changes the mean")
