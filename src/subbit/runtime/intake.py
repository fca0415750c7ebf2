"""Collects the replies of one round: each is checked on arrival, then the step as a whole.

A reply that no honest client could have sent is rejected on its own (`Method.examine`). Accepted replies may still, by
accident or on purpose, lead to an unusable state: values that are not finite, or a network whose outputs are not. Such
a step is not taken. Its contributors are then tried one by one, those that break the state alone are rejected, and the
step is taken with the rest. If they break it only in combination, the round has no step.

For this the frames of a round are kept until its step is taken, up to `MOST_BYTES`. If the state consists of counts, no
reply can break it and no frames are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from subbit.core.errors import FrameError, PayloadError, SubbitError
from subbit.methods.method import Method, State
from subbit.runtime.messages import Failure, Frames, Phase, decode_parts
from subbit.wire.channel import up

MOST_BYTES = 1 << 28
Usable = Callable[[State], None]
"""Raises `SubbitError` for an unusable state."""


class Intake:
    def __init__(self, method: Method[Any], phase: Phase, view: Any, number: int, usable: Usable | None) -> None:
        self._method, self._phase, self._view, self._number = method, phase, view, number
        self._usable = usable
        self._accumulator = method.accumulator()
        self._frames: dict[int, Frames] | None = None if method.state_is_counts else {}
        self._bytes = 0
        self.order_free: bool = self._accumulator.order_free
        self.clients: list[int] = []

    def add(self, client: int, frames: Frames) -> None:
        """Decode, check and add one reply; raises `FrameError` if it is rejected."""
        self._add_to(self._accumulator, client, frames)
        self.clients.append(client)
        self._bytes += sum(map(len, frames))
        if self._bytes > MOST_BYTES:
            self._frames = None
        if self._frames is not None:
            self._frames[client] = frames

    def _add_to(self, accumulator: Any, client: int, frames: Frames) -> None:
        method, view, number = self._method, self._view, self._number
        payloads, examples = decode_parts(method, self._phase, up(number, client), frames, view)
        try:
            with np.errstate(all="ignore"):  # Overflows are detected below and need no warning.
                method.examine(view, payloads, examples, client)
                method.accumulate(accumulator, view, payloads, examples, number, client)
        except FrameError:
            raise
        except Exception as error:  # Any error caused by a client's payload is that client's failure.
            raise PayloadError(f"{type(error).__name__}: {error}", "value") from error

    def step(self, state: State) -> tuple[State, dict[int, Failure]]:
        """The new state and the rejected contributors. If all are rejected, the old state."""
        try:
            return self._step(state, self._accumulator), {}
        except SubbitError as error:
            reason = str(error)
        refused: dict[int, Failure] = {}
        if self._frames is not None:
            for client in self.clients:
                try:
                    self._step(state, self._sum([client]))
                except SubbitError as error:
                    refused[client] = Failure("step", f"this answer alone ruins the state: {error}")
            others = [client for client in self.clients if client not in refused]
            if refused and others:
                try:
                    return self._step(state, self._sum(others)), refused
                except SubbitError as error:
                    reason = str(error)
        for client in self.clients:
            refused.setdefault(client, Failure("step", f"no step: together the answers ruin the state: {reason}"))
        return state, refused

    def _sum(self, clients: Iterable[int]) -> Any:
        accumulator = self._method.accumulator()
        for client in clients:
            self._add_to(accumulator, client, (self._frames or {})[client])
        return accumulator

    def _step(self, state: State, accumulator: Any) -> State:
        """The state after the step; raises `SubbitError` if it is unusable."""
        try:
            with np.errstate(all="ignore"):
                after = self._method.step(state, accumulator, self._number)
        except SubbitError:
            raise
        except Exception as error:  # E.g. a singular matrix. `step` finds out which reply caused it.
            raise SubbitError(f"{type(error).__name__}: {error}") from error
        for name, value in after.items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and not np.isfinite(array).all():  # Integers, e.g. counts, always are.
                raise SubbitError(f"{name!r} would not be finite")
        if self._usable is not None:
            self._usable(after)
        return after
