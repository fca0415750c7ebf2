"""The seam of maps. A piece holds the options; bound to a task it knows the network.

Some maps are probabilistic: what is trained stands for the chance of a bit at each place. Probabilities that two sides
must agree on are 32-bit integer thresholds, theta * 2^32 (`subbit.codecs.sampler`), and scores are floats that only one
side uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class BoundMap(ABC):
    """A map of one task."""

    vector: str = "weights"
    """Name of the trained vector on the wire and in the state."""
    size: int
    """Of the trained vector."""
    network: Reparametrisation
    networks: tuple[str, ...] = ("trained",)
    """What a vector stands for; more than one where it is a distribution."""
    primary: str = "trained"
    """The network by which a run is judged."""
    statistics: bool = False
    """Whether running statistics of the module travel beside the vector."""

    @abstractmethod
    def start(self) -> Vector:
        """The vector with which the server starts the main phase."""

    def known(self) -> Vector:
        """The vector that everybody has before the first broadcast: follows from the configuration alone."""
        return self.start()

    def begin(self, turn: Turn) -> None:
        """Asked before each turn."""
        return

    def received(self, vector: Vector) -> Tensor:
        """What a client starts to train from."""
        return torch.from_numpy(vector.copy())

    def finished(self, trained: Tensor) -> Tensor:
        """What of the trained vector is spoken of."""
        return trained

    def settled(self, vector: Vector) -> Vector:
        """The server's vector after a step, kept where it means something."""
        return vector

    def farthest(self) -> float | None:
        """Bound on the magnitude of any value of the vector; none: there is none."""
        return None

    def observed(self, received: Vector) -> dict[str, float]:
        """What the log says about a vector that a client received."""
        return {}

    def refuse(self, vector: Vector) -> None:
        """`PayloadError` for a vector with which no training ends."""
        return

    def constrain(self, trained: Tensor) -> object:
        """What the vector is kept to after each step, in place."""
        return None

    @abstractmethod
    def write(self, vector: Vector, network: str, key: int) -> None:
        """Put that network into the flat model."""


class ProbabilityMap(Protocol):
    """What a map of bits offers beside: chances as integers, which both sides can draw from."""

    size: int

    def initial_thresholds(self) -> Thresholds:
        """Known to everybody from the configuration."""

    def scores(self, thresholds: Thresholds) -> Tensor:
        """The vector to be trained, in float32 on this machine only: nothing that both sides must agree on depends on
        it."""

    def draw(self, thresholds: Thresholds, key: int) -> Bits:
        """One draw of all bits."""

    def moved(self, thresholds: Thresholds, before: Tensor, after: Tensor) -> Thresholds:
        """Thresholds after training: the old ones plus the change, so that a place that did not move keeps its
        threshold exactly, and training with learning rate 0 flips no bit."""

    def write_thresholds(self, thresholds: Thresholds, network: str, key: int) -> None:
        """Put one of the networks of these probabilities into the flat model."""


class MapPiece(Protocol):
    name: ClassVar[str]
    trains_weights: ClassVar[bool]

    def default_selection(self, blocks: int, pretrained: bool) -> str: ...

    def bind(self, task: Task) -> BoundMap: ...


def as_thresholds(scaled: NDArray[np.float64]) -> Thresholds:
    return np.clip(scaled, 0, FULL - 1).astype(np.uint32)


def added(thresholds: Thresholds, change: NDArray[Any]) -> Thresholds:
    """Thresholds plus a change of the probabilities."""
    return as_thresholds(thresholds.astype(np.float64) + np.rint(change * FULL))
