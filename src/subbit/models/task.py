"""What server and clients know before the first round, and what a client knows about its turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from subbit.core.devices import number
from subbit.data.augment import Augmentation
from subbit.data.examples import Data, Examples
from subbit.data.form import Form
from subbit.models.flat import FlatModel
from subbit.models.linear_products import fast_products
from subbit.models.precision import HALVES
from subbit.models.prefix_cache import PrefixCache
from subbit.objectives.classes import Classification
from subbit.objectives.objective import Objective
from subbit.wire.frame import MAXIMUM_EXAMPLES


@dataclass(frozen=True)
class Task:
    """What server and clients know before the first round."""

    flat: FlatModel
    classes: int
    seed: int
    rounds: int
    clients: int
    participants: int
    """Number of clients selected per round."""
    pretrained: bool
    form: Form
    """Of the examples."""
    job: str = ""
    """Identifies this run: hexadecimal digits drawn at its start. Part of every frame's template."""
    objective: Objective = field(default_factory=Classification)
    augmentation: Augmentation | None = None
    """Of training batches."""
    examples: Mapping[int, int] = field(default_factory=dict)
    """Number of training examples of each client: no upload may claim more. Nodes may join during a run."""
    cache: PrefixCache | None = None
    precision: torch.dtype = torch.float32
    """In which the network computes; what is trained is float32."""
    log_shares: Tensor = field(default_factory=lambda: torch.zeros(0))
    """log(p_c C) for the share p_c of every class among all clients, known once the head is fitted. Empty or NaN: not
    known."""
    products: bool = False
    """Whether linear layers are computed by oneDNN."""

    def outputs(self, batch: Examples) -> Any:
        """The outputs of the network as it is written, with the frozen layers from the cache if there is one."""
        if self.precision == torch.float32:
            return self._outputs(batch)
        with torch.autocast(self.flat.device.type, self.precision):
            return tree_map(_in_float32, self._outputs(batch))

    def _outputs(self, batch: Examples) -> Any:
        with fast_products(self.products):
            if self.cache is not None:
                return self.cache.outputs(batch)
            return self.objective.outputs(self.flat.module, batch)

    def loss(self, batch: Examples) -> Tensor:
        """The mean loss of the network as it is written."""
        return self.objective.loss(self.outputs(batch), batch)

    def mean_loss(self, data: Data, batch_size: int) -> float:
        """The mean loss of the network as it is written, in evaluation mode."""
        self.flat.evaluation_mode()
        with torch.no_grad():
            pairs = [
                (number(self.loss(batch)), self.objective.weight(batch)) for batch in self.in_batches(data, batch_size)
            ]
        weighed = [(loss, weight) for loss, weight in pairs if weight]  # A batch of padding alone has no loss.
        whole = sum(weight for _, weight in weighed)
        return sum(loss * weight for loss, weight in weighed) / whole if whole else math.nan

    def prepare(self, data: Data) -> None:
        """Fill the cache for data that will be used in batches as they are."""
        if self.cache is not None and isinstance(data, Examples):
            with fast_products(self.products):
                self.cache.prepare(data)

    def training_batch(self, data: Data, chosen: NDArray[np.int64], key: int) -> Examples:
        batch = data.batch(chosen)
        return (batch if self.augmentation is None else self.augmentation(batch, key)).to(self.flat.device)

    def in_batches(self, data: Data, size: int) -> Iterator[Examples]:
        """All examples in order, as they are, on the device of the network."""
        return (batch.to(self.flat.device) for batch in data.in_batches(size))

    def most_examples(self, client: int) -> int:
        return self.examples.get(client, MAXIMUM_EXAMPLES)


def _in_float32(value: Any) -> Any:
    """For the loss, which needs the precision."""
    return value.float() if isinstance(value, Tensor) and value.dtype in HALVES else value


@dataclass(frozen=True)
class Turn:
    """One client's part in one round."""

    round_number: int
    client: int
    memory: dict[str, NDArray[Any]]
    """What this client keeps between its turns. Initially empty; written by the client side."""
