"""The result of a run in Python: its numbers, its network and its rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from subbit.core.errors import ConfigError
from subbit.runtime.event_numbers import flat_round
from subbit.runtime.events import MainRound
from subbit.runtime.networks import Network, Networks
from subbit.runtime.results import Summary


@dataclass(frozen=True)
class Trained:
    """What a result knows of its run besides the summary."""

    network: Network
    personal: Networks | None
    """Of methods that give every client a network of its own."""
    rounds: tuple[MainRound, ...]


@dataclass(frozen=True)
class Result:
    """The result of a run. Each key of its summary is also an attribute, e.g. `result.accuracy`."""

    summary: dict[str, Any]
    """The contents of `summary.json`."""
    module: nn.Module
    """The trained network."""
    numbers: Summary
    """The summary, typed."""
    trained: Trained = field(repr=False)

    @property
    def score(self) -> float:
        return self.numbers.score

    @property
    def accuracy(self) -> float:
        """Raises `AttributeError` where the score is not an accuracy."""
        if self.numbers.accuracy is None:
            raise AttributeError(
                f"accuracy: the score of objective={self.numbers.objective} is {self.numbers.score_name}"
            )
        return self.numbers.accuracy

    @property
    def uplink_bpp(self) -> float:
        return self.numbers.uplink_bpp

    @property
    def downlink_bpp(self) -> float:
        return self.numbers.downlink_bpp

    @property
    def total_bytes(self) -> int:
        return self.numbers.total_bytes

    @property
    def networks(self) -> Networks:
        """Client -> its own network, for methods that give every client one. Each is made when it is asked for."""
        if self.trained.personal is None:
            raise ConfigError(f"{self.numbers.method} trains one network for all clients: result.module")
        return self.trained.personal

    @property
    def history(self) -> list[dict[str, Any]]:
        """A flat record per round, e.g. for `pandas.DataFrame(result.history)`.

        `score` and all scores by name (none where a round was not evaluated), `uplink_bytes`, `downlink_bytes` and
        `total_bytes` up to that round (one-off costs only in the last), `seconds`, `answered`, `failures` (how many),
        and what clients observed in training as `train_NAME`, e.g. `train_loss`.
        """
        return [flat_round(event) for event in self.trained.rounds]

    def __getattr__(self, name: str) -> Any:
        if name in ("summary", "module", "numbers", "trained") or name not in self.summary:
            raise AttributeError(name)
        return self.summary[name]
