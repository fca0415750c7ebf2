"""Broadcasts that say only what has changed.

What a client has received it still has. So an incremental method sends down a change of what all receivers hold, and
the runtime sees to it that they do hold it (`subbit.runtime.downlink`): a client that missed rounds is sent the
broadcasts of those rounds too, or one snapshot if that is shorter. Server and clients follow the same bytes, so that
what they hold is equal bit for bit; whatever a lossy change leaves out is known to the server, which has both.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from subbit.methods.base import Held, Method, ParametersType, Part, Payloads, State


class IncrementalMethod(Method[ParametersType]):
    """`down_parts` are the parts of a change, and `open` gets what is held after it."""

    incremental: bool = True
    """False where this run's broadcasts say everything after all."""

    @abstractmethod
    def first(self) -> Held:
        """What everybody holds before the first broadcast: follows from the configuration alone."""

    @abstractmethod
    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        """What to send to somebody who holds `held`."""

    @abstractmethod
    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        """What a receiver holds after this broadcast. Leaves `held` as it is."""

    @abstractmethod
    def snapshot_parts(self) -> tuple[Part, ...]:
        """All that is held, one part for each name, through exact codecs."""

    @abstractmethod
    def snapshot(self, held: Held) -> Payloads: ...

    @abstractmethod
    def restore(self, payloads: Payloads) -> Held:
        """The inverse of `snapshot`."""

    def broadcast(self, state: State, round_number: int) -> Payloads:
        raise NotImplementedError(f"{self.name} sends changes")


def as_incremental(method: Method[Any]) -> IncrementalMethod[Any] | None:
    return method if isinstance(method, IncrementalMethod) and method.incremental else None
