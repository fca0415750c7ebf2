"""Interface of an exchange: what is broadcast, uploaded and aggregated. Works on arrays, never on bytes.

    server                                    client
    state = start()
    broadcast(state)  -- parts, frames -->    view = open(payloads)
                                              trained(view), then local training
    accumulate(...)  <-- parts, frames --     say(view, trained)
    state = step(...)

A *part* is one named payload with its codec. A *view* is the decoded broadcast, e.g. the integer thresholds of a mask.
The server decodes its own broadcast too, so that both sides work with exactly what was sent. The state is a flat dict
of arrays and numbers; it is also the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs import Kind, Shared
from subbit.exchange.honest import FAR, check_within, largest
from subbit.models.task import Turn
from subbit.wire.channel import Part as Part

State = dict[str, NDArray[Any] | int | float]
Payloads = dict[str, Any]
Held = dict[str, NDArray[Any]]
"""What all receivers hold if broadcasts are changes: arrays by name."""


@dataclass(frozen=True)
class Update:
    """A client's upload and its observations (for the log, never used in training)."""

    payloads: Payloads
    examples: int
    observations: dict[str, float] = field(default_factory=dict)


class Changes(Protocol):
    """Broadcasts that contain only what has changed.

    Clients keep what they received. The runtime ensures that all receivers hold the same (`subbit.runtime.downlink`): a
    client that missed rounds is sent the broadcasts of those rounds too, or one snapshot if that is smaller. Server and
    clients apply the same bytes, so what they hold is bit-identical. The server therefore knows the error of a lossy
    change.
    """

    def first(self) -> Held:
        """What all sides hold before the first broadcast; follows from the configuration alone."""

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        """The payloads for a receiver that holds `held`."""

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        """What a receiver holds after this broadcast. Does not modify `held`."""

    def snapshot_parts(self) -> tuple[Part, ...]:
        """Everything that is held, one part per name, with exact codecs."""

    def snapshot(self, held: Held) -> Payloads: ...

    def restore(self, payloads: Payloads) -> Held:
        """The inverse of `snapshot`."""


class Exchange(ABC):
    """Uplink, downlink and aggregation, bound to a task."""

    changes: Changes | None = None
    """How a broadcast is built from changes; none: every broadcast is complete."""
    state_is_counts: bool = False
    """True if the state consists of bit counts, which stay valid whatever is uploaded."""

    @abstractmethod
    def down_parts(self) -> tuple[Part, ...]: ...

    @abstractmethod
    def up_parts(self) -> tuple[Part, ...]: ...

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        """What both sides know about a part before it arrives.

        `view` is the decoded broadcast. For the parts of the broadcast itself it is what the receivers hold if
        broadcasts are changes, else None.
        """
        return Shared(part.size)

    # Server side.

    @abstractmethod
    def start(self) -> State: ...

    @abstractmethod
    def broadcast(self, state: State, round_number: int) -> Payloads: ...

    def after_broadcast(self, state: State, held: Held) -> State:
        """The state to which the answers are added, if broadcasts are changes and receivers hold `held`."""
        return state

    @abstractmethod
    def open(self, payloads: Payloads, round_number: int) -> Any:
        """The view: the decoded broadcast of this round."""

    @abstractmethod
    def accumulator(self) -> Any:
        """An empty accumulator; `order_free` is true if the result does not depend on the order of additions, bit for
        bit."""

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        """Reject, with a `PayloadError`, what no honest client could have sent. Called before `accumulate`."""
        examine_vectors(self, view, payloads)

    def farthest(self, part: Part, view: Any) -> float:
        """Largest magnitude of a real number in that part from an honest client."""
        return farthest_by_view(part, view)

    @abstractmethod
    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """Add all of a client's payloads, or nothing and raise a `PayloadError`."""

    @abstractmethod
    def step(self, state: State, accumulator: Any, round_number: int) -> State: ...

    # Client side.

    @abstractmethod
    def trained(self, view: Any) -> Tensor:
        """The vector to train, initialised from the broadcast; a new copy."""

    @abstractmethod
    def say(self, view: Any, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        """The upload after training, and observations about it."""

    # Evaluation.

    @abstractmethod
    def write(self, state: State, network: str, key: int) -> None:
        """Write the given network of the state into the flat model."""


class Speaker(Protocol):
    """Lists the uploaded parts and the bounds on their values."""

    def up_parts(self) -> tuple[Part, ...]: ...

    def farthest(self, part: Part, view: Any) -> float: ...


def examine_vectors(speaker: Speaker, view: Any, payloads: Payloads) -> None:
    """Reject real numbers that are not finite or exceed `farthest`."""
    for part in speaker.up_parts():
        if part.codec.kind is Kind.VECTOR and payloads[part.name] is not None:
            check_within(payloads[part.name], speaker.farthest(part, view), part.name)


def farthest_by_view(part: Part, view: Any) -> float:
    return FAR * max(1.0, largest(view.get(part.name) if isinstance(view, Mapping) else None))


def as_float32(vector: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vector, dtype=np.float32)
