"""Interface of maps. A map holds the options; bound to a task it knows the network.

Some maps are probabilistic: the trained vector determines the probability of a bit at each place. Probabilities that
two sides must agree on are 32-bit integer thresholds, theta * 2^32 (`subbit.codecs.sampler`); scores are floats that
only one side uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs import Vector
from subbit.codecs.codec import Bits
from subbit.codecs.sampler import Thresholds
from subbit.core.registry import make_registry
from subbit.models.reparametrisation import Reparametrisation
from subbit.models.task import Task, Turn

make_registry("map")
FULL = float(1 << 32)
"""A threshold is a probability times 2^32."""
BLOCK = 1 << 16


class BoundMap(ABC):
    """A map bound to a task."""

    vector: str = "weights"
    """Name of the trained vector on the wire and in the state."""
    size: int
    """Size of the trained vector."""
    network: Reparametrisation
    networks: tuple[str, ...] = ("trained",)
    """Networks that a vector defines; more than one if it is a distribution."""
    primary: str = "trained"
    """The network on which a run is evaluated."""
    statistics: bool = False
    """Whether the module's running statistics are sent with the vector."""
    relative: bool = False
    """Whether the vector describes a distance from the start, which receivers then need."""

    @property
    def moves(self) -> int:
        """How many values move in a round, and are sent."""
        return self.size

    def moving(self, round_number: int) -> NDArray[np.int64] | None:
        """The places of those values, in order; none: all."""
        return None

    @abstractmethod
    def start(self) -> Vector:
        """The server's vector at the start of the main phase."""

    def known(self) -> Vector:
        """The vector known to all sides before the first broadcast; follows from the configuration alone."""
        return self.start()

    def begin(self, turn: Turn) -> None:
        """Called before each turn."""
        return

    def received(self, vector: Vector) -> Tensor:
        """The tensor from which a client starts training."""
        # In torch's memory, which begins at a multiple of 64 bytes: in numpy's, vector instructions cross cache lines.
        trained = torch.empty(vector.size)
        trained.numpy()[:] = vector
        return trained

    def finished(self, trained: Tensor) -> Tensor:
        """The part of the trained vector that is uploaded."""
        return trained

    def settled(self, vector: Vector) -> Vector:
        """The server's vector after a step, projected back to valid values."""
        return vector

    def farthest(self) -> float | None:
        """Bound on the magnitude of the vector's values, if there is one."""
        return None

    def observed(self, received: Vector) -> dict[str, float]:
        """Observations about a received vector, for the log."""
        return {}

    def refuse(self, vector: Vector) -> None:
        """Raises `PayloadError` for a vector that training cannot produce."""
        return

    def toward_start(self, trained: Tensor, share: float) -> Tensor:
        """Of a vector that is a distance from the start: this share of it, as far as it moves in this turn."""
        return share * trained

    def constrain(self, trained: Tensor) -> object:
        """Project the vector to valid values after each step, in place."""
        return None

    @abstractmethod
    def write(self, vector: Vector, network: str, key: int) -> None:
        """Write the given network into the flat model."""


class ProbabilityMap(Protocol):
    """Additional interface of maps of bits: probabilities as integers from which both sides can draw."""

    size: int

    def initial_thresholds(self) -> Thresholds:
        """Known to all sides from the configuration."""

    def scores(self, thresholds: Thresholds) -> Tensor:
        """The vector to train, in float32, used on one machine only: nothing that both sides must agree on depends on
        it."""

    def draw(self, thresholds: Thresholds, key: int) -> Bits:
        """One draw of all bits."""

    def moved(self, thresholds: Thresholds, after: Tensor) -> Thresholds:
        """Thresholds after training: the old ones plus the change since `scores(thresholds)`, so that an unchanged
        place keeps its exact threshold and training with learning rate 0 flips no bit."""

    def write_thresholds(self, thresholds: Thresholds, network: str, key: int) -> None:
        """Write one of the networks of these probabilities into the flat model."""


class MapPiece(Protocol):
    name: ClassVar[str]
    trains_weights: ClassVar[bool]

    def default_selection(self, blocks: int, pretrained: bool) -> str: ...

    def bind(self, task: Task) -> BoundMap: ...


def blocks(size: int) -> Iterator[slice]:
    """The places in blocks, so that intermediate results in float64 stay small. A block is a multiple of 8 places."""
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def as_thresholds(scaled: NDArray[np.float64]) -> Thresholds:
    return np.clip(scaled, 0, FULL - 1).astype(np.uint32)


def added(thresholds: Thresholds, change: NDArray[Any]) -> Thresholds:
    """Thresholds plus a change of the probabilities."""
    return as_thresholds(thresholds.astype(np.float64) + np.rint(change * FULL))
