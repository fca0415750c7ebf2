"""The network that FedMask's clients mask: which places, over which frozen weights.

Selected weights are masked; other selected parameters (biases, norms, an LSTM's output gate) have real values. The
trained vector holds, for all selected places, the scores of the masked ones and the changes of the real ones, in units
of `real_rate` (`subbit.models.hard_mask`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs import Vector
from subbit.codecs.packed import unpack_bits
from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key
from subbit.maps.bound import BoundMap
from subbit.methods.fedmask_parameters import FedMaskParameters
from subbit.models.hard_mask import HardMask, frozen_weights
from subbit.models.structure import masked_layers, places_of
from subbit.models.task import Task

Booleans = NDArray[np.bool_]


class MaskedNetwork(BoundMap):
    vector = "scores"
    networks = ("common",)
    primary = "common"
    network: HardMask

    def __init__(self, parameters: FedMaskParameters, task: Task) -> None:
        self.local, self.task = parameters.local, task
        self.layers = masked_layers(task.flat, parameters.map.output_gate == "masked")
        if not self.layers:
            raise ConfigError("fedmask masks weights, and none of them is selected: use select='all: weights'")
        self.structures = parameters.pruning.structures(self.layers)
        self.size = task.flat.template.size
        self.masked = places_of(self.layers)
        self.real = np.setdiff1d(np.arange(self.size), self.masked)
        self.frozen = self._frozen(parameters)
        self.network = self.inside(self.structure(None))

    def _frozen(self, parameters: FedMaskParameters) -> Tensor:
        form, initial = parameters.map.weights, self.task.flat.initial
        if form == "auto":
            form = "keep" if self.task.pretrained else "kaiming"
        if form == "keep":
            return initial
        rate = parameters.pruning.keep_rate
        shares = [rate if layer in self.structures.layers else 1.0 for layer in self.layers]
        return frozen_weights(initial, self.layers, form, shares, derive_key(self.task.seed, "frozen-weights"))

    def structure(self, units: Any) -> Booleans:
        """The masked places that belong to a client; all of them before it has pruned."""
        if units is None:
            return np.ones(self.masked.size, dtype=np.bool_)
        return self.structures.elements(unpack_bits(units, self.structures.units))

    def inside(self, structure: Booleans) -> HardMask:
        """The map from the trained vector to the weights of a client with this structure."""
        alive = np.zeros(self.size, dtype=np.float32)
        alive[self.masked] = structure
        soft, real = self.local.forward == "soft", self.task.flat.place(self.real)
        return HardMask(self.frozen, self.task.flat.place(alive), real, self.local.real_rate, soft)

    def joined(self, scores: NDArray[Any], real: Any) -> Vector:
        """Join scores and real values into one vector."""
        vector = np.zeros(self.size, dtype=np.float32)
        vector[self.masked] = scores
        if real is not None:
            vector[self.real] = real
        return vector

    def start(self) -> Vector:
        return self.joined(np.full(self.masked.size, self.local.score), None)

    def write(self, vector: Vector, network: str, key: int) -> None:
        """Write the network that is sent and deployed: a one where the score is not negative."""
        self.network.write_hard(self.task.flat.place(vector), self.task.flat.weights)

    def write_mask(self, mask: Booleans, real: Any) -> None:
        """Write the network with exactly this mask."""
        self.write(self.joined(np.where(mask, 1, -1), real), self.primary, 0)
