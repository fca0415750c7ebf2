"""What server and clients know before the first round, and what a client knows about its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from subbit.models.flat import FlatModel
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

    def most_examples(self, client: int) -> int:
        return self.examples[client] if client < len(self.examples) else MAXIMUM_EXAMPLES


@dataclass(frozen=True)
class Turn:
    """One client's part in one round."""

    round_number: int
    client: int
    memory: dict[str, NDArray[Any]]
    """What this client keeps between its turns. Initially empty; written by the client side."""
