"""The seam of an exchange: what goes down, what goes up, and what the server makes of it. On arrays, never on bytes.

    server                                    client
    state = start()
    broadcast(state)  -- parts, frames -->    view = open(payloads)
                                              trained(view), to be trained
    accumulate(...)  <-- parts, frames --     say(view, trained)
    state = step(...)

A *part* is one named payload with its codec. A *view* is what the broadcast means, e.g. the integer thresholds of a
mask: the server opens its own broadcast too, so that both sides work with exactly what was sent. The state is a flat
dict of arrays and numbers, and that is the checkpoint.
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
"""What all receivers of broadcasts that are changes hold: arrays by name."""


@dataclass(frozen=True)
class Update:
    """What a client sends, and what it saw on the way (for the log: never used in training)."""

    payloads: Payloads
    examples: int
    observations: dict[str, float] = field(default_factory=dict)


class Changes(Protocol):
    """Broadcasts that say only what has changed.

    What a client has received it still has. The runtime sees to it that all receivers hold the same
    (`subbit.runtime.downlink`): a client that missed rounds is sent the broadcasts of those rounds too, or one snapshot
    if that is shorter. Server and clients follow the same bytes, so that what they hold is equal bit for bit; whatever
    a lossy change leaves out is known to the server, which has both.
    """

    def first(self) -> Held:
        """What everybody holds before the first broadcast: follows from the configuration alone."""

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        """What to send to somebody who holds `held`."""

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        """What a receiver holds after this broadcast. Leaves `held` as it is."""

    def snapshot_parts(self) -> tuple[Part, ...]:
        """All that is held, one part for each name, through exact codecs."""

    def snapshot(self, held: Held) -> Payloads: ...

    def restore(self, payloads: Payloads) -> Held:
        """The inverse of `snapshot`."""


class Exchange(ABC):
    """Up, down and aggregation, bound to a task."""

    changes: Changes | None = None
    """How a broadcast is made of what changed; none: every broadcast says everything."""
    state_is_counts: bool = False
    """True where the state is made of counts of bits, which no upload can leave useless."""

    @abstractmethod
    def down_parts(self) -> tuple[Part, ...]: ...

    @abstractmethod
    def up_parts(self) -> tuple[Part, ...]: ...

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        """What both sides know about a part before it arrives.

        `view` is what the broadcast means; for the parts of the broadcast itself it is what its receivers hold, where
        broadcasts are changes, and None elsewhere.
        """
        return Shared(part.size)

    # The server half.

    @abstractmethod
    def start(self) -> State: ...

    @abstractmethod
    def broadcast(self, state: State, round_number: int) -> Payloads: ...

    @abstractmethod
    def open(self, payloads: Payloads, round_number: int) -> Any:
        """The view: what the broadcast of this round means."""

    @abstractmethod
    def accumulator(self) -> Any:
        """An empty accumulator: `order_free` says whether the order of additions can change its bits."""

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        """Refuse, with a `PayloadError`, what no honest client could have sent. Asked before `accumulate`."""
        examine_vectors(self, view, payloads)

    def farthest(self, part: Part, view: Any) -> float:
        """Largest magnitude of a real number that an honest client sends in that part."""
        return farthest_by_view(part, view)

    @abstractmethod
    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """Add one client's payloads: all of them or, with a `PayloadError`, nothing."""

    @abstractmethod
    def step(self, state: State, accumulator: Any, round_number: int) -> State: ...

    # The client half.

    @abstractmethod
    def trained(self, view: Any) -> Tensor:
        """The vector that a client trains, as the broadcast has it: a copy of its own."""

    @abstractmethod
    def say(self, view: Any, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        """What a client sends after training, and what can be observed of it."""

    # Evaluation.

    @abstractmethod
    def write(self, state: State, network: str, key: int) -> None:
        """Put that network of the state into the flat model."""


class Speaker(Protocol):
    """Whoever lists what goes up and how far its numbers may reach."""

    def up_parts(self) -> tuple[Part, ...]: ...

    def farthest(self, part: Part, view: Any) -> float: ...


def examine_vectors(speaker: Speaker, view: Any, payloads: Payloads) -> None:
    """Refuse real numbers that are not finite or lie beyond `farthest`."""
    for part in speaker.up_parts():
        if part.codec.kind is Kind.VECTOR and payloads[part.name] is not None:
            check_within(payloads[part.name], speaker.farthest(part, view), part.name)


def farthest_by_view(part: Part, view: Any) -> float:
    return FAR * max(1.0, largest(view.get(part.name) if isinstance(view, Mapping) else None))


def as_float32(vector: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vector, dtype=np.float32)
