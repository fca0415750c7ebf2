"""How many values, at how many bits, a budget in bytes allows. Bytes are those of frames, headers included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from subbit.codecs.eden import Eden
from subbit.codecs.trellis import Trellis
from subbit.core.cohorts import choose_participants
from subbit.core.errors import ConfigError
from subbit.models.task import Task
from subbit.wire.frame import HEADER_BYTES

Sized = Eden | Trellis
"""Codecs whose length follows from the number of values and bits."""
FINEST = 1 / 64
"""Bits per value are multiples of this, if there is a choice."""


@dataclass(frozen=True)
class Spending:
    """What one client sends and is sent in a round, on average over the run."""

    up: Sized
    down: Sized
    missed: Mapping[int, int]
    """How often a client that takes part has missed so many broadcasts. It is sent these, too, or a snapshot of what
    they add up to, in float32."""
    fixed: int = 0
    """Values that are sent in float32 besides, e.g. running statistics."""
    held: int = 0
    """Values that receivers hold, where these are more than move in a round."""

    def bytes(self, values: int) -> float:
        beside = HEADER_BYTES + 4 * self.fixed if self.fixed else 0
        up, down = (HEADER_BYTES + codec.fixed_length(values) + beside for codec in (self.up, self.down))
        snapshot = HEADER_BYTES + 4 * max(values, self.held) + beside
        caught_up = sum(times * min(missed * down, snapshot) for missed, times in self.missed.items())
        return up + down + caught_up / max(sum(self.missed.values()), 1)

    def most_values(self, budget: int, available: int) -> int:
        """The largest number of values within the budget."""
        if self.bytes(1) > budget:
            raise ConfigError(f"bytes={budget}: needs at least {self.bytes(1):.0f} here, up and down together")
        return _last(lambda values: self.bytes(values) <= budget, 1, available)

    def most_bits(self, budget: int, values: int) -> Spending:
        """With as many bits per value as fit."""

        def at(steps: int) -> Spending:
            bits = steps * FINEST
            return replace(self, up=replace(self.up, bits=bits), down=replace(self.down, bits=bits))

        least, most = min(self.up.bits, self.down.bits), min(self.up.most_bits, self.down.most_bits)
        return at(_last(lambda steps: at(steps).bytes(values) <= budget, round(least / FINEST), round(most / FINEST)))


def _last(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number that fits, if smaller ones fit too; `low` fits."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def missed_broadcasts(task: Task) -> Counter[int]:
    """How often a client that takes part has missed so many broadcasts, over the run.

    Who takes part is known in advance, except where clients are selected by their loss.
    """
    candidates = sorted(client for client, examples in task.examples.items() if examples) or [*range(task.clients)]
    last: dict[int, int] = {}
    found: Counter[int] = Counter()
    for number in range(task.rounds):
        participants = choose_participants(candidates, task.participants, task.seed, "main", number)
        found.update(number - last.get(client, -1) - 1 for client in participants)
        last |= dict.fromkeys(participants, number)
    return found
