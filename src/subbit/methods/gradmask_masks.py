"""Which weights a client of `gradmask` may change: masks by name.

What a mask follows from decides who can know it. One of a key is known to both sides; one of the weights is too, until
the client has trained; one of examples (`subbit.methods.sensitivity`) only to the client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from subbit.codecs import Vector
from subbit.codecs.sampler import uniforms
from subbit.core.registry import make_registry, register
from subbit.data.examples import Examples
from subbit.models.flat import FlatModel

make_registry("gradient-mask")
Kept = NDArray[np.bool_]
Source = Literal["key", "weights", "examples"]


@dataclass(frozen=True)
class Scene:
    """What a mask can be chosen by."""

    flat: FlatModel
    weights: Vector
    share: float
    key: int
    batch_size: int = 64
    data: Examples | None = None
    """Of the client; none where both sides choose."""

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
    """Exactly `count` of the places still kept: those of smallest or largest score, among equals the earlier ones.

    A threshold would keep too few or too many where scores are equal, as those of dead weights are: all zero.
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
    """The share of the places, rounded up, with the share as the decimal it was written as.

    >>> places_of_share(100, 0.07), places_of_share(10, 0.301), places_of_share(3, 0.01)
    (7, 4, 1)
    """
    return math.ceil(Fraction(str(share)) * size)
