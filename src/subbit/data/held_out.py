"""Which rows of a single file are test examples. The choice depends on the rows alone, not on the seed of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import DataError
from subbit.core.randomness import derive_key, numpy_generator
from subbit.data.examples import Indices

SHARE = 0.2


def hold_out(
    count: int, share: float, classes: NDArray[Any] | None, owners: Sequence[str] | None, where: str
) -> tuple[Indices, Indices]:
    """Positions to train on and to test on, ascending.

    The share is taken of every owner, or of every class where there are no owners: of two examples or more, at least
    one is on each side. Of an owner's examples, classes keep their shares as far as whole numbers allow.

    >>> train, test = hold_out(10, 0.2, np.array([0] * 6 + [1] * 4), None, "here")
    >>> len(train), len(test), sorted(test // 6)
    (8, 2, [np.int64(0), np.int64(1)])
    """
    generator = numpy_generator(derive_key(0, "held-out"))
    order = generator.permutation(count)
    groups: NDArray[Any] = np.zeros(count, dtype=np.int64)
    if owners is not None:
        groups = np.unique(np.array(owners, dtype=str), return_inverse=True)[1]
    elif classes is not None:
        groups = np.unique(classes, return_inverse=True)[1]
    if owners is not None and classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    order = order[np.argsort(groups[order], kind="stable")]
    is_test = np.zeros(count, dtype=bool)
    for members in np.split(order, np.cumsum(np.bincount(groups))[:-1]):
        wanted = min(max(1, round(share * len(members))), len(members) - 1)
        # Evenly over the members, which are sorted by class.
        is_test[members[((np.arange(wanted) + 0.5) * len(members) / max(1, wanted)).astype(np.int64)]] = True
    if not is_test.any():
        raise DataError(
            f"{where}: found {count} rows, no class or owner of which has two; need test rows: name a file with test="
        )
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
