"""Which values of a subspace move in a round, where others do in the next.

Those that change the outputs most come first. One that has moved for a round has done most of what it can: each turn
takes it an octave down, behind the values that are more than half as strong. So the strongest have several turns before
the weakest have one, and all sides know which without a byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from subbit.core.randomness import numpy_generator

OCTAVE = 8
"""Strengths are integers: so many are a factor of two. Rounding in another order, on another machine, moves none of
them unless a norm is at the very border between two."""


def strengths_of(norms: NDArray[np.float64], octave: int = OCTAVE) -> NDArray[np.int64]:
    """
    >>> strengths_of(np.array([1.0, 2.0, 0.5])).tolist()
    [0, 8, -8]
    """
    found: NDArray[np.int64] = np.rint(octave * np.log2(np.maximum(norms, 1e-9))).astype(np.int64)
    return found


@dataclass(frozen=True)
class Rotation:
    strengths: NDArray[np.int64]
    """Of the values that take turns: the first ones of the vector."""
    at_once: int
    """Of these, how many move in a round."""
    always: int
    """Values behind them, which move in every round."""
    key: int
    """Decides between equals."""
    _turns: list[NDArray[np.int64]] = field(default_factory=list, repr=False)
    """Of the rounds so far."""

    @property
    def pool(self) -> int:
        return len(self.strengths)

    @property
    def moves(self) -> int:
        return self.at_once + self.always

    def moving(self, round_number: int) -> NDArray[np.int64]:
        """The places of a round, in order.

        >>> rotation = Rotation(np.array([20, 1, 0, 19]), at_once=2, always=1, key=0)
        >>> [rotation.moving(number).tolist() for number in range(5)]
        [[0, 3, 4], [0, 3, 4], [0, 3, 4], [1, 2, 4], [0, 3, 4]]
        """
        while len(self._turns) <= round_number:
            taken = np.bincount(np.concatenate([*self._turns, np.zeros(0, dtype=np.int64)]), minlength=self.pool)
            left = self.strengths - OCTAVE * taken
            first = np.lexsort((self._lots, -left))[: self.at_once]
            self._turns.append(np.sort(first))
        return np.concatenate([self._turns[round_number], np.arange(self.pool, self.pool + self.always)])

    @property
    def _lots(self) -> NDArray[np.int64]:
        return numpy_generator(self.key).permutation(self.pool).astype(np.int64)
