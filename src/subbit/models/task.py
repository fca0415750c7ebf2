"""What server and clients know before the first round, and what a client knows about its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.data.examples import Examples
from subbit.models.flat import FlatModel
from subbit.models.prefix_cache import PrefixCache
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
    input_shape: tuple[int, ...]
    """Shape of one input, without the batch dimension."""
    input_type: torch.dtype
    job: str = ""
    """Identifies this run: hexadecimal digits drawn at its start. Part of every frame's template."""
    examples: tuple[int, ...] = ()
    """Number of training examples of each client: no upload may claim more."""
    cache: PrefixCache | None = None

    def outputs(self, batch: Examples) -> Tensor:
        """The outputs of the network as it is written, with the frozen layers from the cache if there is one."""
        if self.cache is not None:
            return self.cache.outputs(batch)
        outputs: Tensor = self.flat.module(batch.inputs)
        return outputs

    def prepare(self, data: Examples) -> None:
        """Fill the cache for data that will be used in batches."""
        if self.cache is not None:
            self.cache.prepare(data)

    def most_examples(self, client: int) -> int:
        return self.examples[client] if client < len(self.examples) else MAXIMUM_EXAMPLES


@dataclass(frozen=True)
class Turn:
    """One client's part in one round."""

    round_number: int
    client: int
    memory: dict[str, NDArray[Any]]
    """What this client keeps between its turns. Initially empty; written by the client side."""
