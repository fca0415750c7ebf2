"""Bounds on what an honest client can send. Whatever is beyond them is refused before it is added to anything.

They are wide on purpose: no client that trains may ever be refused. What a lie within them can do is a matter of the
aggregation, see `subbit.aggregate.robust`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.errors import PayloadError
from subbit.models.flat import FlatModel
from subbit.models.head_start import LdaStatistics

FAR = 1e4
"""Values that are trained stay below this many times the largest that was sent out, or 1: further is no training."""
FAR_FEATURE = 1e6
"""Features are not trained, and nobody normalises them: what reaches the head may be larger."""
ROUNDING = 1e-6
"""Relative slack for sums that travelled as float32, each of which is off by at most 2^-24 of itself."""


def largest(values: NDArray[Any] | None) -> float:
    """Magnitude of the largest value, not a number if one of them is not; 0 of nothing."""
    return 0.0 if values is None else float(np.max(np.abs(values), initial=0))


def check_within(values: NDArray[Any], most: float, what: str) -> None:
    found = largest(values)
    if not found <= most:  # Neither is what is not a number.
        raise PayloadError(f"{what} holds a value of magnitude {found:g}, honest clients stay below {most:g}", "value")


def check_not_negative(values: NDArray[Any], what: str) -> None:
    if not (values >= 0).all():
        raise PayloadError(f"{what} holds {values.min():g}: needs 0 or more", "value")


def check_variances(flat: FlatModel, before: NDArray[Any], change: NDArray[Any]) -> None:
    """Running variances stay at or above zero, or the network of everybody computes roots of negative numbers.

    An honest change is var' - var with var' >= 0, rounded: never below -var, and no mean of such changes is either.
    """
    template = flat.statistics_template
    if template is not None:
        variances = np.repeat([name.endswith("running_var") for name in template.names], template.counts)
        check_not_negative((before.astype(np.float64) + change)[variances], "a running variance")


def check_statistics(statistics: LdaStatistics, examples: int) -> None:
    """Class counts, class sums and the second moment of so many examples.

    With n_c examples of class c and s_c their sum, M - sum_c s_c s_c' / n_c is a sum of squares of distances from class
    means: it has no negative eigenvalue. (Its diagonal alone is the inequality of Cauchy and Schwarz.)
    """
    counts, sums, moment = statistics.counts, statistics.sums, statistics.moment
    if not bool(((counts >= 0) & (counts == counts.round())).all()):
        raise PayloadError(f"{counts.min():g} examples of a class: needs a whole number, 0 or more", "value")
    if not abs(float(counts.sum()) - examples) <= ROUNDING * examples:
        raise PayloadError(f"classes of {counts.sum():g} examples together, the upload speaks of {examples}", "value")
    check_within(sums.numpy(), examples * FAR_FEATURE, "sums of features")
    check_within(moment.numpy(), examples * FAR_FEATURE**2, "second moments of features")
    if bool(sums[counts == 0].any()):
        raise PayloadError("a sum of features of a class without examples", "value")
    means = sums / counts.clamp(min=1)[:, None]
    least = float(torch.linalg.eigvalsh(moment - means.T @ sums)[0])
    # The least number of float32 beside: squares of small features become zero on the way, their sums do not.
    slack = ROUNDING * float(moment.trace()) + examples * float(np.finfo(np.float32).tiny)
    if not least >= -slack:
        raise PayloadError(f"second moments with an eigenvalue of {least:g} within classes: needs 0 or more", "value")
