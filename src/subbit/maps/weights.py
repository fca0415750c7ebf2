"""The map of methods that train the weights themselves, and the choice between maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from subbit.codecs import Vector
from subbit.core.devices import host
from subbit.core.pieces import choice
from subbit.core.registry import register
from subbit.maps.bound import BoundMap, MapPiece
from subbit.models.reparametrisation import Identity
from subbit.models.task import Task


@register("map", "weights")
@dataclass(frozen=True)
class WeightMap:
    """The weights themselves."""

    name: ClassVar[str] = "weights"
    trains_weights: ClassVar[bool] = True

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return "all"

    def bind(self, task: Task) -> Weights:
        return Weights(task)


class Weights(BoundMap):
    def __init__(self, task: Task) -> None:
        self.flat = task.flat
        self.size = task.flat.template.size
        self.network = Identity(self.size)
        self.statistics = task.flat.statistics is not None

    def start(self) -> Vector:
        weights: Vector = host(self.flat.weights).copy()
        return weights

    def known(self) -> Vector:
        weights: Vector = host(self.flat.initial).copy()
        return weights

    def write(self, vector: Vector, network: str, key: int) -> None:
        with torch.no_grad():
            # A received vector may be read-only, of which torch warns even where it is only read.
            self.flat.weights.copy_(torch.from_numpy(np.require(vector, requirements="W")))


def has_a_vector(piece: Any) -> bool:
    return hasattr(piece, "bind")


@dataclass(frozen=True)
class MapChoice:
    """What is trained."""

    map: MapPiece = choice("map", WeightMap(), accepts=has_a_vector)
