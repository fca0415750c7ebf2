"""Base class of the methods: a map, local training and an exchange (uplink, downlink, aggregation), plus what is
specific to one paper.

    map        what is trained, and how it determines the weights          `subbit.maps`
    local      how a client trains                                         `subbit.local`
    exchange   what is broadcast, uploaded and aggregated                  `subbit.exchange`

A method that only combines these sets the three attributes in its constructor. Others override the functions below,
which are the whole interface to the runtime. All random numbers are drawn from keys of (seed, purpose, round, client).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from subbit.codecs import Shared
from subbit.data.examples import Data
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
    """The method's components and options: a frozen dataclass."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keys that differ from their defaults, by preset. Contains "default" and "paper"."""
    words: ClassVar[Mapping[str, Any]] = {}
    """Keys set by the method's name, see `subbit.methods.variants`."""
    personal: ClassVar[bool] = False
    """True if every client ends up with its own network, see `personalise`."""

    map: BoundMap
    exchange: Exchange
    trainer: Trainer

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        self.parameters = parameters
        self.task = task
        self.size = task.flat.template.size

    # Before a task exists.

    @classmethod
    def map_piece(cls, parameters: ParametersType) -> MapPiece:
        """The configured map, before it is bound to a task."""
        piece = getattr(parameters, "map", WeightMap())
        return piece.map if isinstance(piece, MapChoice) else piece

    @classmethod
    def default_selection(cls, parameters: ParametersType, blocks: int, pretrained: bool) -> str:
        """What `select="auto"` means for a module with this many blocks."""
        return cls.map_piece(parameters).default_selection(blocks, pretrained)

    @classmethod
    def trains_weights(cls, parameters: ParametersType) -> bool:
        """True if the selected weights themselves change; False for masks on frozen weights."""
        return cls.map_piece(parameters).trains_weights

    @classmethod
    def prepare(cls, module: nn.Module, parameters: ParametersType, classes: int, key: int) -> str | None:
        """Add to the module, in place, what this method trains; new values are drawn from the key.

        Returns the selection of what is trained, or none to use the run's own `select`.
        """
        return None

    # Payloads, see `subbit.exchange.exchange`.

    @property
    def changes(self) -> Changes | None:
        return self.exchange.changes

    @property
    def state_is_counts(self) -> bool:
        return self.exchange.state_is_counts

    @property
    def needs_start(self) -> bool:
        """True if receivers need the fitted head before the first broadcast although it is trained too: changes are
        relative to it."""
        changes = self.changes is not None or self.map.relative
        return changes and self.trains_weights(self.parameters)

    def down_parts(self) -> tuple[Part, ...]:
        return self.exchange.down_parts()

    def up_parts(self) -> tuple[Part, ...]:
        return self.exchange.up_parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        return self.exchange.shared(part, view, round_number, client)

    # Server side.

    def start(self) -> State:
        return self.exchange.start()

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return self.exchange.broadcast(state, round_number)

    def after_broadcast(self, state: State, held: Held | None) -> State:
        return state if held is None else self.exchange.after_broadcast(state, held)

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

    # Client side.

    def train(self, view: Any, data: Data, turn: Turn) -> Update:
        trained = self.exchange.trained(view)
        observed = self.trainer.train(trained, data, turn)
        payloads, also = self.exchange.say(view, trained, turn)
        return Update(payloads, len(data), {**observed, **also})

    # Evaluation.

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks defined by a state; the last round reports the accuracy of each."""
        return self.map.networks

    @property
    def primary_network(self) -> str:
        """The network whose accuracy is the accuracy of the run."""
        return self.map.primary

    def write_network(self, state: State, network: str, key: int) -> None:
        """Write the network into the flat model; `key` seeds its draws, if any."""
        self.exchange.write(state, network, key)

    def write(self, vectors: Mapping[str, Any]) -> None:
        """Write weights, and statistics if any, into the flat model."""
        flat = self.task.flat
        with torch.no_grad():
            flat.weights.copy_(torch.from_numpy(vectors["weights"]))
            if flat.statistics is not None:
                flat.statistics.copy_(torch.from_numpy(vectors["statistics"]))

    @property
    def broadcasts_network(self) -> bool:
        """Whether a broadcast is a network whose loss a client can compute before training."""
        return isinstance(self.exchange, VectorExchange) and isinstance(self.map, Weights)

    def write_received(self, view: Any) -> None:
        """Write the primary network of a received broadcast into the flat model."""
        self.map.write(self.exchange.trained(view).detach().numpy(), self.primary_network, 0)

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The noise mechanism of private training, if any."""
        return self.trainer.mechanism

    def personalise(self, view: Any, data: Data, turn: Turn) -> None:
        """Write the client's own network into the flat model: the one it would use after receiving this broadcast.

        Called for personal methods only. `turn.memory` is what the client kept, empty if it never participated; it is
        not modified.
        """
        raise NotImplementedError(f"{self.name} has no network of a client's own")
