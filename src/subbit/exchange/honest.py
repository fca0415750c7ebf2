"""Bounds on what an honest client can send. Uploads beyond them are rejected before they are aggregated.

The bounds are wide so that no client that trains is ever rejected. What a malicious client can do within them is
limited by the aggregation, see `subbit.aggregate.robust`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.errors import PayloadError
from subbit.models.flat import FlatModel
from subbit.models.head_start import LdaStatistics

FAR = 1e4
"""Trained values stay below this multiple of the largest broadcast value (at least 1)."""
FAR_FEATURE = 1e6
"""Features are neither trained nor normalised, so the head's inputs may be larger."""
ROUNDING = 1e-6
"""Relative tolerance for sums sent as float32, each rounded by at most 2^-24 of itself."""


def largest(values: NDArray[Any] | None) -> float:
    """Largest magnitude, NaN if any value is NaN; 0 for no values."""
    if values is None or not values.size:
        return 0.0
    # Two passes over the values take less time than a copy of their magnitudes. Both results are NaN if a value is.
    most, least = float(values.max()), float(values.min())
    return most if math.isnan(most) else max(abs(most), abs(least))


class KeptLargest:
    """`largest` of an array that does not change and is asked for again and again: the broadcast, for every client."""

    def __init__(self) -> None:
        self._array: Callable[[], NDArray[Any] | None] = lambda: None
        self._found = 0.0

    def __call__(self, values: NDArray[Any]) -> float:
        if self._array() is not values:
            self._array, self._found = weakref.ref(values), largest(values)
        return self._found


def check_within(values: NDArray[Any], most: float, what: str) -> float:
    """Return the largest magnitude after checking it."""
    found = largest(values)
    if not found <= most:  # Also true for NaN.
        raise PayloadError(f"{what} holds a value of magnitude {found:g}, honest clients stay below {most:g}", "value")
    return found


def check_not_negative(values: NDArray[Any], what: str) -> None:
    if not (values >= 0).all():
        raise PayloadError(f"{what} holds {values.min():g}: needs 0 or more", "value")


def check_variances(flat: FlatModel, before: NDArray[Any], change: NDArray[Any]) -> None:
    """Running variances must not become negative.

    An honest change is var' - var with var' >= 0, rounded: it is never below -var, and neither is a mean of such
    changes.
    """
    template = flat.statistics_template
    if template is not None:
        variances = np.repeat([name.endswith("running_var") for name in template.names], template.counts)
        check_not_negative((before.astype(np.float64) + change)[variances], "a running variance")


def check_statistics(statistics: LdaStatistics, examples: int, rounding: float = ROUNDING) -> None:
    """Check class counts, class sums and the second moment of this many examples.

    `rounding` is what a codec may add to an eigenvalue of the moment, relative to its trace.

    With n_c examples of class c and sum s_c, M - sum_c s_c s_c' / n_c is the scatter around the class means, so it has
    no negative eigenvalue. (Its diagonal alone is the Cauchy-Schwarz inequality.)
    """
    check_counts(statistics.counts, examples)
    check_moments(statistics, examples)
    moment = statistics.moment
    least = float(torch.linalg.eigvalsh(moment - statistics.between)[0])
    # Plus the smallest normal float32: squares of small features may underflow to zero where their sums do not.
    slack = rounding * float(moment.trace()) + examples * float(np.finfo(np.float32).tiny)
    if not least >= -slack:
        raise PayloadError(f"second moments with an eigenvalue of {least:g} within classes: needs 0 or more", "value")


def check_counts(counts: torch.Tensor, examples: int) -> None:
    if not bool(((counts >= 0) & (counts == counts.round())).all()):
        raise PayloadError(f"{counts.min():g} examples of a class: needs a whole number, 0 or more", "value")
    if not abs(float(counts.sum()) - examples) <= ROUNDING * examples:
        raise PayloadError(f"classes of {counts.sum():g} examples together, the upload speaks of {examples}", "value")


def check_moments(statistics: LdaStatistics, examples: int) -> None:
    """Check sizes only."""
    check_within(statistics.sums.numpy(), examples * FAR_FEATURE, "sums of features")
    check_within(statistics.moment.numpy(), examples * FAR_FEATURE**2, "second moments of features")
    if bool(statistics.sums[statistics.counts == 0].any()):
        raise PayloadError("a sum of features of a class without examples", "value")
