"""Which values of a subspace move in a round, where others do in the next.

All values of the pool take turns, in an order that is drawn once: round t has those at t m, ..., t m + m - 1 of it,
counted in a circle. So every value has moved before one moves again, and all sides know which without a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from subbit.core.randomness import numpy_generator


@dataclass(frozen=True)
class Rotation:
    pool: int
    """Values that take turns: the first ones of the vector."""
    at_once: int
    """Of these, how many move in a round."""
    always: int
    """Values behind the pool, which move in every round."""
    key: int

    @property
    def moves(self) -> int:
        return self.at_once + self.always

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return numpy_generator(self.key).permutation(self.pool).astype(np.int64)

    def moving(self, round_number: int) -> NDArray[np.int64]:
        """The places of a round, in order.

        >>> rotation = Rotation(pool=5, at_once=2, always=1, key=0)
        >>> rounds = [rotation.moving(number).tolist() for number in range(5)]
        >>> all(found[-1] == 5 for found in rounds), sorted(place for found in rounds for place in found[:-1])
        (True, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
        """
        turns = (round_number * self.at_once + np.arange(self.at_once)) % self.pool
        return np.concatenate([np.sort(self._order[turns]), np.arange(self.pool, self.pool + self.always)])
