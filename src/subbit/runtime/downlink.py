"""The downlink of a round: the server's and the client's side.

An ordinary broadcast is complete. An incremental method broadcasts what changed since the last round, so a client that
missed rounds is also sent their frames, or a snapshot of what the others hold, whichever is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from subbit.core.errors import FrameError
from subbit.methods.method import Held, Method, State
from subbit.runtime.messages import Frames, Order, Phase, decode_parts, encode_parts
from subbit.wire.channel import down

MOST_MISSED = 64
"""Number of rounds whose broadcasts are kept for clients that missed them. Older ones cost more than a snapshot
anyway."""
HELD = "held-"
HELD_ROUND = "held-round"


@dataclass
class Broadcasts:
    """What the receivers of an incremental method hold, and how clients that missed rounds catch up."""

    held: Held | None = None
    recent: dict[int, Frames] = field(default_factory=dict)
    """Frames of the last rounds, by round."""
    seen: dict[int, int] = field(default_factory=dict)
    """By client, the last round whose broadcast it has."""


@dataclass(frozen=True)
class Downlink:
    """One round's broadcast: the frames, the decoded view, and what receivers hold afterwards."""

    method: Method[Any]
    phase: Phase
    round_number: int
    frames: Frames
    view: Any
    before: Held | None
    held: Held | None

    def missing(self, broadcasts: Broadcasts, client: int) -> tuple[tuple[Frames, ...], Frames]:
        """The missed broadcasts that this client needs, or a snapshot instead."""
        if self.before is None:
            return (), ()
        rounds = range(broadcasts.seen.get(client, -1) + 1, self.round_number)
        if not rounds:
            return (), ()
        snapshot = self._snapshot
        if all(number in broadcasts.recent for number in rounds):
            missed = tuple(broadcasts.recent[number] for number in rounds)
            if sum(map(count_bytes, missed)) <= count_bytes(snapshot):
                return missed, ()
        return (), snapshot

    @cached_property
    def _snapshot(self) -> Frames:
        """What the others held before this round: the same bytes for all clients that need it."""
        changes = self.method.changes
        if changes is None or self.before is None:
            return ()
        return encode_parts(self.method, "snapshot", down(self.round_number - 1), changes.snapshot(self.before), None)

    def remember(self, broadcasts: Broadcasts, answered: tuple[int, ...]) -> None:
        """Called when the round is complete: clients that answered hold this broadcast."""
        if self.held is None:
            return
        broadcasts.held = self.held
        broadcasts.recent[self.round_number] = self.frames
        broadcasts.recent.pop(self.round_number - MOST_MISSED, None)
        broadcasts.seen.update(dict.fromkeys(answered, self.round_number))


def make_downlink(method: Method[Any], phase: Phase, state: State, broadcasts: Broadcasts, number: int) -> Downlink:
    """Encode once, the same bytes for all clients. The server decodes these bytes too."""
    changes = method.changes
    if changes is None:
        frames = encode_parts(method, phase, down(number), method.broadcast(state, number), None)
        return Downlink(method, phase, number, frames, open_broadcast(method, phase, number, frames), None, None)
    before = changes.first() if broadcasts.held is None else broadcasts.held
    frames = encode_parts(method, phase, down(number), changes.change(state, before, number), before)
    held, view = _understand(method, phase, frames, before, number)
    return Downlink(method, phase, number, frames, view, before, held)


_opened: WeakKeyDictionary[Method[Any], tuple[tuple[Phase, int, Frames], Any]] = WeakKeyDictionary()
"""By method, its last complete broadcast and what was decoded from it. It is the same for all that have these bytes in
this process, the server and the clients, and they only read it."""


def open_broadcast(method: Method[Any], phase: Phase, number: int, frames: Frames) -> Any:
    """What a complete broadcast says."""
    broadcast = (phase, number, frames)
    if method not in _opened or _opened[method][0] != broadcast:
        _opened.pop(method, None)  # Two views of a large network may not fit in memory.
        _opened[method] = broadcast, _understand(method, phase, frames, None, number)[1]
    return _opened[method][1]


def forget_broadcast(method: Method[Any]) -> None:
    _opened.pop(method, None)


def receive(method: Method[Any], order: Order, memory: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Client side: returns the view and stores what the client holds in `memory`."""
    changes = method.changes
    if changes is None:
        return open_broadcast(method, order.phase, order.round_number, order.frames)
    round_held = int(memory[HELD_ROUND][0]) if HELD_ROUND in memory else -1
    held = {name.removeprefix(HELD): value for name, value in memory.items() if name.startswith(HELD)}
    held.pop("round", None)
    first_missed = order.round_number - len(order.missed)
    if order.snapshot:
        payloads, _ = decode_parts(method, "snapshot", down(order.round_number - 1), order.snapshot, None)
        held = changes.restore(payloads)
    elif round_held != first_missed - 1:
        raise FrameError("memory", f"this client holds round {round_held}, the order builds on {first_missed - 1}")
    elif round_held == -1:
        held = changes.first()
    for number, frames in enumerate(order.missed, start=first_missed):
        payloads, _ = decode_parts(method, order.phase, down(number), frames, held)
        held = changes.follow(held, payloads, number)
    after, view = _understand(method, order.phase, order.frames, held, order.round_number)
    memory.update({HELD + name: value for name, value in (after or {}).items()})
    memory[HELD_ROUND] = np.array([order.round_number])
    return view


def _understand(
    method: Method[Any], phase: Phase, frames: Frames, before: Held | None, number: int
) -> tuple[Held | None, Any]:
    payloads, _ = decode_parts(method, phase, down(number), frames, before)
    changes = method.changes
    if changes is not None and before is not None:
        held = changes.follow(before, payloads, number)
        return held, method.open(held, number)
    return None, method.open(payloads, number)


def count_bytes(frames: Frames) -> int:
    return sum(map(len, frames))
