"""The network that FedMask's clients mask: which places, over which frozen weights, and how a client trains it.

Masked are the weights that are selected; what else is selected (biases, norms, an LSTM's output gate) has real values.
A *vector* holds, for all selected places, the scores of the masked and the changes of the real ones, in units of
`real_rate` (`subbit.models.hard_mask`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs.base import Bits
from subbit.codecs.bits import pack_bits, unpack_bits
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import Task, Turn
from subbit.methods.fedmask_parameters import FedMaskParameters
from subbit.methods.local import train_locally
from subbit.models.hard_mask import HardMask, frozen_weights
from subbit.models.structure import Structures, group_lasso, masked_layers, places_of
from subbit.randomness import derive_key

Booleans = NDArray[np.bool_]


class MaskedNetwork:
    def __init__(self, parameters: FedMaskParameters, task: Task) -> None:
        self.parameters, self.task = parameters, task
        self.layers = masked_layers(task.flat, parameters.output_gate == "masked")
        if not self.layers:
            raise ConfigError("fedmask masks weights, and none of them is selected: use select='all: weights'")
        self.structures = Structures(
            self.layers,
            parameters.pruned_layers,
            parameters.keep_rate,
            parameters.prune == "rows",
            parameters.prune_scope == "layer",
        )
        self.size = task.flat.template.size
        self.masked = places_of(self.layers)
        self.real = np.setdiff1d(np.arange(self.size), self.masked)
        self.frozen = self._frozen()

    def _frozen(self) -> Tensor:
        form = self.parameters.weights
        if form == "auto":
            form = "keep" if self.task.pretrained else "kaiming"
        if form == "keep":
            return self.task.flat.initial
        shares = [self.parameters.keep_rate if layer in self.structures.layers else 1.0 for layer in self.layers]
        return frozen_weights(
            self.task.flat.initial, self.layers, form, shares, derive_key(self.task.seed, "frozen-weights")
        )

    def structure(self, units: Any) -> Booleans:
        """Which masked places belong to a client: all of them before it has pruned any."""
        if units is None:
            return np.ones(self.masked.size, dtype=np.bool_)
        return self.structures.elements(unpack_bits(units, self.structures.units))

    def vector(self, scores: NDArray[Any], real: Any) -> Tensor:
        vector = np.zeros(self.size, dtype=np.float32)
        vector[self.masked] = scores
        if real is not None:
            vector[self.real] = real
        return torch.from_numpy(vector)

    def prune(self, start: Tensor, data: Examples, turn: Turn) -> Bits:
        """The client's structure, from where training without one takes the scores."""
        everything = self._hard_mask(self.structure(None))
        after = start.clone()
        settings = replace(self.parameters, epochs=self.parameters.prune_epochs)
        train_locally(self.task, settings, everything, after, data, turn, constrain=everything.clamp_)
        merit = (after - start).abs() if self.parameters.saliency == "change" else torch.sigmoid(after)
        magnitude = np.abs(self.frozen.numpy()[self.structures.places])
        return pack_bits(self.structures.prune(magnitude * merit.numpy()[self.structures.places], magnitude))

    def train(self, start: Tensor, structure: Booleans, data: Examples, turn: Turn) -> tuple[Tensor, float]:
        """The trained vector and the mean loss of its last epoch."""
        parameters, hard_mask = self.parameters, self._hard_mask(structure)

        def add_lasso(trained: Tensor, gradient: Tensor, epoch: int, step: int) -> None:
            _, slope = group_lasso(trained, hard_mask.alive, self.layers, parameters.lasso_scaled)
            gradient.add_(slope, alpha=parameters.lasso)

        trained = start.clone()
        adjust = add_lasso if parameters.lasso else None
        loss = train_locally(
            self.task, parameters, hard_mask, trained, data, turn, constrain=hard_mask.clamp_, adjust=adjust
        )
        return trained, loss

    def write(self, mask: Booleans, real: Any) -> None:
        """The network with exactly these ones into the flat model."""
        vector = self.vector(np.where(mask, 1, -1), real)
        self._hard_mask(self.structure(None)).write_hard(vector, self.task.flat.weights)

    def _hard_mask(self, structure: Booleans) -> HardMask:
        alive = np.zeros(self.size, dtype=np.float32)
        alive[self.masked] = structure
        soft = self.parameters.forward == "soft"
        return HardMask(
            self.frozen, torch.from_numpy(alive), torch.from_numpy(self.real), self.parameters.real_rate, soft
        )
