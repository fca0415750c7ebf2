"""Registry of the masks of `gradmask`: which weights a client may change.

The source of a mask decides who knows it. A mask drawn from a key is known to both sides; so is one chosen by the
weights, until the client has trained; one chosen by examples (`subbit.methods.sensitivity`) is known only to the
client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Vector
from subbit.codecs.sampler import uniforms
from subbit.core.registry import make_registry, register
from subbit.data.examples import Data
from subbit.models.flat import FlatModel
from subbit.objectives.classes import Classification
from subbit.objectives.objective import Objective

make_registry("gradient-mask")
Kept = NDArray[np.bool_]
Source = Literal["key", "weights", "examples"]


@dataclass(frozen=True)
class Scene:
    """The inputs from which a mask can be chosen."""

    flat: FlatModel
    weights: Vector
    share: float
    key: int
    batch_size: int = 64
    data: Data | None = None
    """The client's examples; none if both sides compute the mask."""
    objective: Objective = field(default_factory=Classification)

    @property
    def count(self) -> int:
        return places_of_share(self.weights.size, self.share)


class GradientMask(Protocol):
    name: ClassVar[str]
    follows: ClassVar[Source]

    def choose(self, scene: Scene) -> Kept:
        """The active places, exactly `scene.count`."""


@register("gradient-mask", "random")
@dataclass(frozen=True)
class RandomMask:
    name: ClassVar[str] = "random"
    follows: ClassVar[Source] = "key"

    def choose(self, scene: Scene) -> Kept:
        return keep_exactly(uniforms(scene.key, 0, scene.weights.size), scene.count, largest=False)


@register("gradient-mask", "lowest-magnitude")
@dataclass(frozen=True)
class LowestMagnitude:
    name: ClassVar[str] = "lowest-magnitude"
    follows: ClassVar[Source] = "weights"
    largest: ClassVar[bool] = False

    def choose(self, scene: Scene) -> Kept:
        return keep_exactly(np.abs(scene.weights), scene.count, self.largest)


@register("gradient-mask", "highest-magnitude")
@dataclass(frozen=True)
class HighestMagnitude(LowestMagnitude):
    name: ClassVar[str] = "highest-magnitude"
    largest: ClassVar[bool] = True


def keep_exactly(scores: NDArray[Any], count: int, largest: bool, kept: Kept | None = None) -> Kept:
    """Keep exactly `count` of the kept places: the smallest or largest scores, ties in favour of the lower index.

    A threshold would keep too few or too many among equal scores, such as the zeros of dead weights.
    """
    among = np.arange(scores.size) if kept is None else np.flatnonzero(kept)
    values = -scores[among] if largest else scores[among]
    last = np.partition(values, count - 1)[count - 1]
    below = values < last
    ties = np.flatnonzero(values == last)[: count - np.count_nonzero(below)]
    chosen = np.zeros(scores.size, dtype=np.bool_)
    chosen[among[below]] = True
    chosen[among[ties]] = True
    return chosen


def places_of_share(size: int, share: float) -> int:
    """The number of places for a share, rounded up; the share is taken as its decimal representation.

    >>> places_of_share(100, 0.07), places_of_share(10, 0.301), places_of_share(3, 0.01)
    (7, 4, 1)
    """
    return math.ceil(Fraction(str(share)) * size)
