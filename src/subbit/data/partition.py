"""Partition examples over clients, by name: built-in partitions (`subbit.data.splits`) and those of plugins.

A partition is a function of a `Split`. It returns an array of positions for each client; no position may occur twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError, DataError
from subbit.core.registry import Registry, make_registry
from subbit.data import splits
from subbit.data.examples import Data
from subbit.data.splits import Parts, Split

_OURS: dict[str, Callable[[Split], Parts]] = {
    "iid": splits.iid,
    "dirichlet": splits.dirichlet,
    "classes": splits.classes,
    "classes-equal": splits.classes_equal,
    "classes-starved": splits.classes_starved,
    "natural": splits.natural,
}


def _check_thing(name: str, thing: Any) -> None:
    if not callable(thing):
        raise ConfigError(f"partition {name!r}: needs a function of a subbit.data.splits.Split")


PARTITIONS: Registry[Callable[[Split], Parts]] = make_registry("partition", _OURS, _check_thing)


def partition(examples: Data, clients: int, how: str, **options: Any) -> Parts:
    """`clients` ascending, disjoint arrays of positions. Some may be empty, as with Dirichlet(0.1).

    The options are those of `Split`.
    """
    divide = PARTITIONS.find(how)
    split = Split(examples, clients, **options)
    _check(split, how)
    with blaming(f"partition {how!r}", divide):
        parts = divide(split)
    return parts if how in _OURS else _examined(parts, clients, len(examples), how)


def _examined(parts: Any, clients: int, count: int, how: str) -> Parts:
    """Check and sort the result of a plugin."""
    try:
        arrays = [np.sort(np.asarray(part).astype(np.int64, casting="same_kind")) for part in parts]
        together: NDArray[np.int64] = np.concatenate([np.zeros(0, np.int64), *arrays])
    except (TypeError, ValueError) as error:
        raise DataError(f"partition {how!r}: needs an array of whole numbers for each client: {error}") from None
    if len(arrays) != clients:
        raise DataError(f"partition {how!r}: made {len(arrays)} parts for {clients} clients")
    if together.size and not 0 <= together.min() <= together.max() < count:
        raise DataError(f"partition {how!r}: positions from {together.min()} to {together.max()} of {count} examples")
    if len(np.unique(together)) < together.size:
        raise DataError(f"partition {how!r}: gave an example to a client twice, or to two clients")
    return arrays


def _check(split: Split, how: str) -> None:
    if split.clients < 1:
        raise ConfigError(f"found {split.clients} clients; need at least 1")
    if not (split.alpha > 0 and math.isfinite(split.alpha)):
        raise ConfigError(f"found alpha {split.alpha}; need a finite number above 0")
    if not 0 < split.class_balance <= 1:
        raise ConfigError(f"found class_balance {split.class_balance}; need a share above 0, at most 1")
    if how in ("classes", "classes-equal", "classes-starved"):
        present = len(np.unique(split.labels))
        if not 1 <= split.classes_per_client <= present:
            raise ConfigError(
                f"found classes_per_client {split.classes_per_client}; need 1 to {present}, the classes that occur"
            )
    if split.clients > len(split.examples):
        found = len(split.examples)
        raise DataError(f"found {found} examples for {split.clients} clients; need at least one per client")
