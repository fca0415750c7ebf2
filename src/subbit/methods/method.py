"""What a method is: a map, local training and an exchange (up, down, aggregation), put together, and what only that
paper does.

    map        what is trained, and the weights that follow from it        `subbit.maps`
    local      how a client trains                                         `subbit.local`
    exchange   what goes down and up, and how answers become one           `subbit.exchange`

A method that is no more than its pieces sets these three when it is made. One that does something of its own overrides
the functions below: they are all that the runtime asks of a method. Whatever is drawn is drawn from keys of (seed,
purpose, round, client).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from subbit.codecs import Shared
from subbit.data.examples import Examples
from subbit.exchange.exchange import Changes as Changes
from subbit.exchange.exchange import Exchange as Exchange
from subbit.exchange.exchange import Held as Held
from subbit.exchange.exchange import Part as Part
from subbit.exchange.exchange import Payloads as Payloads
from subbit.exchange.exchange import State as State
from subbit.exchange.exchange import Update as Update
from subbit.exchange.exchange import as_float32 as as_float32
from subbit.exchange.vectors import VectorExchange
from subbit.local.trainer import Trainer
from subbit.maps import BoundMap, MapChoice, MapPiece
from subbit.maps.weights import WeightMap, Weights
from subbit.models.task import Task as Task
from subbit.models.task import Turn as Turn
from subbit.privacy.mechanism import GaussianMechanism

ParametersType = TypeVar("ParametersType")


class Method(Generic[ParametersType]):
    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    """Number of the paper in the documentation, or "baseline"."""
    citation: ClassVar[str]
    sends_up: ClassVar[str]
    sends_down: ClassVar[str]
    Parameters: ClassVar[type[Any]]
    """The pieces and the options: a frozen dataclass."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keys that differ from their defaults, by preset. Has "default" and "paper"."""
    words: ClassVar[Mapping[str, Any]] = {}
    """Keys that the method's name stands for, see `subbit.methods.variants`."""
    personal: ClassVar[bool] = False
    """True where every client ends up with a network of its own: see `personalise`."""

    map: BoundMap
    exchange: Exchange
    trainer: Trainer

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        self.parameters = parameters
        self.task = task
        self.size = task.flat.template.size

    # Before there is a task.

    @classmethod
    def map_piece(cls, parameters: ParametersType) -> MapPiece:
        """What is trained, before it is bound to a task."""
        piece = getattr(parameters, "map", WeightMap())
        return piece.map if isinstance(piece, MapChoice) else piece

    @classmethod
    def default_selection(cls, parameters: ParametersType, blocks: int, pretrained: bool) -> str:
        """What `select="auto"` means for a module with that many blocks."""
        return cls.map_piece(parameters).default_selection(blocks, pretrained)

    @classmethod
    def trains_weights(cls, parameters: ParametersType) -> bool:
        """True where the selected weights themselves change; False for masks on frozen weights."""
        return cls.map_piece(parameters).trains_weights

    @classmethod
    def prepare(cls, module: nn.Module, parameters: ParametersType, classes: int, key: int) -> str | None:
        """Add to the module, in place, what this method trains; new values are drawn from the key.

        Returns the selection of what is trained, or none: then the run's own `select` decides.
        """
        return None

    # What travels: see `subbit.exchange.exchange`.

    @property
    def changes(self) -> Changes | None:
        return self.exchange.changes

    @property
    def state_is_counts(self) -> bool:
        return self.exchange.state_is_counts

    @property
    def needs_start(self) -> bool:
        """True where receivers must have a fitted head before the first broadcast although it is among what is
        trained: changes are counted from there."""
        return self.changes is not None and self.trains_weights(self.parameters)

    def down_parts(self) -> tuple[Part, ...]:
        return self.exchange.down_parts()

    def up_parts(self) -> tuple[Part, ...]:
        return self.exchange.up_parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        return self.exchange.shared(part, view, round_number, client)

    # The server half.

    def start(self) -> State:
        return self.exchange.start()

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return self.exchange.broadcast(state, round_number)

    def open(self, payloads: Payloads, round_number: int) -> Any:
        return self.exchange.open(payloads, round_number)

    def accumulator(self) -> Any:
        return self.exchange.accumulator()

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        self.exchange.examine(view, payloads, examples, client)

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        self.exchange.accumulate(accumulator, view, payloads, examples, round_number, client)

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        return self.exchange.step(state, accumulator, round_number)

    # The client half.

    def train(self, view: Any, data: Examples, turn: Turn) -> Update:
        trained = self.exchange.trained(view)
        observed = self.trainer.train(trained, data, turn)
        payloads, also = self.exchange.say(view, trained, turn)
        return Update(payloads, len(data), {**observed, **also})

    # Evaluation.

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks a state stands for; the last round reports the accuracy of each."""
        return self.map.networks

    @property
    def primary_network(self) -> str:
        """The network whose accuracy is the accuracy of the run."""
        return self.map.primary

    def write_network(self, state: State, network: str, key: int) -> None:
        """Put that network into the flat model; `key` feeds its draws, if it has any."""
        self.exchange.write(state, network, key)

    def write(self, vectors: Mapping[str, Any]) -> None:
        """Put weights, and statistics where there are any, into the flat model."""
        flat = self.task.flat
        with torch.no_grad():
            flat.weights.copy_(torch.from_numpy(vectors["weights"]))
            if flat.statistics is not None:
                flat.statistics.copy_(torch.from_numpy(vectors["statistics"]))

    @property
    def broadcasts_network(self) -> bool:
        """Whether a broadcast is a network, whose loss a client can tell before it trains."""
        return isinstance(self.exchange, VectorExchange) and isinstance(self.map, Weights)

    def write_broadcast(self, view: Any) -> None:
        """Put the network that was broadcast into the flat model."""
        self.exchange.write(view, self.primary_network, 0)

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The noise of private training, where there is any."""
        return self.trainer.mechanism

    def personalise(self, view: Any, data: Examples, turn: Turn) -> None:
        """Put the client's own network into the flat model: the one it would use, having received this broadcast.

        Asked of personal methods alone. `turn.memory` is what the client kept, empty if it never took part, and is
        left as it is.
        """
        raise NotImplementedError(f"{self.name} has no network of a client's own")
