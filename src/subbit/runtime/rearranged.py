"""The same problem for another question: which setting is best, and what would training in one place reach?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from subbit.config.schema import RunConfig
from subbit.core.errors import DataError
from subbit.core.randomness import derive_key, numpy_generator

if TYPE_CHECKING:
    from subbit.runtime.problem import Problem


def rearranged(problem: Problem, run: RunConfig) -> Problem:
    """The problem with a validation split (`validation`) and all examples in one place (`pooled`), if asked for."""
    if run.validation is not None:
        problem = with_validation(problem, run.validation, run.seed)
    return pooled(problem) if run.pooled else problem


def with_validation(problem: Problem, share: float, seed: int) -> Problem:
    """A share of every client's training examples becomes the test set. Nothing of the real one is left.

    A client keeps at least one example to train on.
    """
    kept: list[NDArray[np.int64]] = []
    held: list[NDArray[np.int64]] = []
    for client, part in enumerate(problem.parts):
        order = numpy_generator(derive_key(seed, "validation", 0, client)).permutation(len(part))
        count = min(round(share * len(part)), max(0, len(part) - 1))
        held.append(np.sort(part[order[:count]]))
        kept.append(np.sort(part[order[count:]]))
    chosen = np.concatenate(held)
    if not len(chosen):
        raise DataError(f"validation={share}: no client has enough examples to hold out any; needs a larger share")
    own = None
    if problem.own_tests is not None:
        own = tuple(np.split(np.arange(len(chosen)), np.cumsum([len(part) for part in held])[:-1]))
    return replace(problem, parts=tuple(kept), test=problem.train.select(chosen), own_tests=own)


def pooled(problem: Problem) -> Problem:
    """One client has what all clients had."""
    own = None if problem.own_tests is None else (np.concatenate(problem.own_tests),)
    return replace(problem, parts=(np.sort(np.concatenate(problem.parts)),), own_tests=own)
