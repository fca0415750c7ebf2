"""What a method is: both halves of a federated algorithm in one class, on arrays, never on bytes.

    server                                    client
    state = start()
    broadcast(state)  -- parts, frames -->    view = open(payloads)
                                              train(view, data)  ->  Update
    accumulate(...)  <-- parts, frames --     Update.payloads
    state = step(...)

A *part* is one named payload with its codec. A *view* is what the broadcast means, e.g. the integer thresholds of a
mask: the server opens its own broadcast too, so that both sides work with exactly what was sent. The state is a flat
dict of arrays and numbers, and that is the checkpoint. Whatever is drawn is drawn from keys of (seed, purpose,
round, client).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subbit.codecs import Kind, Shared
from subbit.data.examples import Examples
from subbit.methods.honest import FAR, check_within, largest
from subbit.models.flat import FlatModel
from subbit.wire.channel import Part as Part  # What a method sends is listed in parts: part of this seam.
from subbit.wire.frame import MAXIMUM_EXAMPLES

ParametersType = TypeVar("ParametersType")
State = dict[str, NDArray[Any] | int | float]
Payloads = dict[str, Any]
Held = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Task:
    """What server and clients know before the first round."""

    flat: FlatModel
    classes: int
    seed: int
    rounds: int
    clients: int
    participants: int
    """Clients asked per round."""
    pretrained: bool
    input_shape: tuple[int, ...]
    """Of one input, without the batch."""
    input_type: torch.dtype
    job: str = ""
    """Which run this is, in hexadecimal digits drawn at its start. Part of every frame's template."""
    examples: tuple[int, ...] = ()
    """How many training examples each client has: no upload may speak of more."""

    def most_examples(self, client: int) -> int:
        return self.examples[client] if client < len(self.examples) else MAXIMUM_EXAMPLES


@dataclass(frozen=True)
class Turn:
    """One client's part in one round."""

    round_number: int
    client: int
    memory: dict[str, NDArray[Any]]
    """What this client keeps between its turns. Starts empty; written by the client half."""


@dataclass(frozen=True)
class Update:
    """What a client sends, and what it saw on the way (for the log: never used in training)."""

    payloads: Payloads
    examples: int
    observations: dict[str, float] = field(default_factory=dict)


class Method(ABC, Generic[ParametersType]):
    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    """Number of the paper in the documentation, or "baseline"."""
    citation: ClassVar[str]
    sends_up: ClassVar[str]
    sends_down: ClassVar[str]
    Parameters: ClassVar[type[Any]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Parameters that differ from their defaults, by preset. Has "default" and "paper"."""
    networks: ClassVar[tuple[str, ...]]
    """Names of the networks a state stands for; the last round reports the accuracy of each."""
    trains_added_values: ClassVar[bool]
    """True where the selected weights themselves change; False for masks on frozen weights."""
    state_is_counts: ClassVar[bool] = False
    """True where the state is made of counts of bits, which no upload can leave useless."""
    personal: ClassVar[bool] = False
    """True where every client ends up with a network of its own: see `personalise`."""
    needs_start: bool = False
    """True where receivers must have a fitted head before the first broadcast although it is among what is trained:
    changes are counted from there."""

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        self.parameters = parameters
        self.task = task
        self.size = task.flat.template.size

    @staticmethod
    def default_selection(blocks: int, pretrained: bool) -> str:
        """What `select="auto"` means for a module with that many blocks."""
        return "all"

    @classmethod
    def prepare(cls, module: nn.Module, parameters: ParametersType, classes: int, key: int) -> str | None:
        """Add to the module, in place, what this method trains; new values are drawn from the key.

        Returns the selection of what is trained, or none: then the run's own `select` decides.
        """
        return None

    # What travels. The same on both sides. A method whose broadcast is a change: see `subbit.methods.incremental`.

    @abstractmethod
    def down_parts(self) -> tuple[Part, ...]: ...

    @abstractmethod
    def up_parts(self) -> tuple[Part, ...]: ...

    @abstractmethod
    def open(self, payloads: Payloads, round_number: int) -> Any:
        """The view: what the broadcast of this round means."""

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        """What both sides know about a part before it arrives.

        `view` is what the broadcast means; for the parts of the broadcast itself it is what its receivers hold, in an
        incremental method, and None in others.
        """
        return Shared(part.size)

    # The server half.

    @abstractmethod
    def start(self) -> State: ...

    @abstractmethod
    def broadcast(self, state: State, round_number: int) -> Payloads: ...

    @abstractmethod
    def accumulator(self) -> Any:
        """An empty accumulator: `order_free` says whether the order of additions can change its bits."""

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        """Refuse, with a `PayloadError`, what no honest client could have sent. Asked before `accumulate`.

        Here: real numbers that are not finite or lie beyond `farthest`.
        """
        for part in self.up_parts():
            if part.codec.kind is Kind.VECTOR and payloads[part.name] is not None:
                check_within(payloads[part.name], self.farthest(part, view), part.name)

    def farthest(self, part: Part, view: Any) -> float:
        """Largest magnitude of a real number that an honest client sends in that part."""
        return FAR * max(1.0, largest(view.get(part.name) if isinstance(view, Mapping) else None))

    @abstractmethod
    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """Add one client's payloads: all of them or, with a `PayloadError`, nothing."""

    @abstractmethod
    def step(self, state: State, accumulator: Any, round_number: int) -> State: ...

    # The client half.

    @abstractmethod
    def train(self, view: Any, data: Examples, turn: Turn) -> Update: ...

    # Evaluation.

    @property
    @abstractmethod
    def primary_network(self) -> str:
        """The network whose accuracy is the accuracy of the run."""

    @abstractmethod
    def write_network(self, state: State, network: str, key: int) -> None:
        """Put that network into the flat model; `key` feeds its draws, if it has any."""

    def personalise(self, view: Any, data: Examples, turn: Turn) -> None:
        """Put the client's own network into the flat model: the one it would use, having received this broadcast.

        Asked of personal methods alone. `turn.memory` is what the client kept, empty if it never took part, and is
        left as it is.
        """
        raise NotImplementedError(f"{self.name} has no network of a client's own")


def as_float32(vector: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vector, dtype=np.float32)
