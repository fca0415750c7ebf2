"""Broadcasts probabilities, clients upload bits drawn from them, the server counts: a Beta posterior over masks.

The server stores how many of the last `total` masks had a one at each place. Both sides convert this to 32-bit integer
thresholds, so that masks drawn on the server and on a client from the same key are bit-identical
(`subbit.codecs.sampler`). The component `up` defines how a client sends its bits.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import MaskCounts, trimmed_counts
from subbit.aggregate.aggregators import Aggregator, check_trim
from subbit.codecs import Codec, Counts, Kind, Shared
from subbit.codecs.codec import Bits
from subbit.codecs.counted import CountsCodec
from subbit.codecs.sampler import Thresholds, sample_bits, thresholds_of_counts
from subbit.codecs.take import take, thresholds_of_theta
from subbit.core.errors import ConfigError
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.core.registry import register
from subbit.core.values import require
from subbit.exchange.exchange import Exchange, Part, Payloads, State
from subbit.maps.bound import FULL, BoundMap, ProbabilityMap
from subbit.models.task import Task, Turn

MOST_MASKS = 65535
MILLION = 1_000_000


@register("aggregator", "beta")
@dataclass(frozen=True)
class Beta:
    """The posterior of each place under a uniform prior."""

    name: ClassVar[str] = "beta"
    estimator: Literal["mode", "mean"] = "mode"
    """Estimate from the Beta posterior: M / K (clamped) or (1 + M) / (2 + K)."""
    clamp: float = 0.01
    """Distance that the mode keeps from 0 and 1, where a place could never change again."""
    trim: float = 0.0
    """Share of the bits dropped at each end for each place; tolerates up to this share of malicious clients."""
    reset_every: int | None = None
    """Rounds after which the posterior restarts; none: 1 / participation, as in the papers."""

    def __post_init__(self) -> None:
        require(0 <= self.clamp < 0.5, f"clamp={self.clamp}: needs 0 up to, not including, 0.5")
        check_trim(self.trim)
        require(self.reset_every is None or self.reset_every >= 1, f"reset_every={self.reset_every}: needs at least 1")

    def thresholds(self, counts: Counts) -> Thresholds:
        return take(self.table(counts.total), counts.values)

    def table(self, total: int) -> Thresholds:
        """The threshold of each count of ones among `total` masks."""
        trimmed = trimmed_counts(Counts(total, np.arange(total + 1, dtype=np.uint16)), self.trim)
        clamp = round(self.clamp * MILLION)
        table: Thresholds = thresholds_of_counts(
            trimmed.total, self.estimator, clamp_numerator=clamp, clamp_denominator=MILLION
        )
        return table[trimmed.values]


@dataclass(frozen=True)
class BitsAggregate:
    """How uploads are aggregated: bits are counted; score changes, sent with a vector codec, are averaged."""

    aggregator: Beta | Aggregator = choice("aggregator", Beta())

    @property
    def beta(self) -> Beta:
        if not isinstance(self.aggregator, Beta):
            raise ConfigError(f"aggregator={self.aggregator.name}: bits are counted; use beta, which has `trim`")
        return self.aggregator


def goes_down(codec: Any) -> bool:
    return codec.kind in (Kind.COUNTS, Kind.VECTOR)


@dataclass(frozen=True)
class BitsDown:
    """How probabilities are broadcast: entropy-coded counts, or `dense`, float32 as in the papers.

    With a vector codec on the uplink there is nothing to count: the trained vector is broadcast with any vector codec,
    by default float32.
    """

    codec: Codec[Any] = choice("codec", CountsCodec(), accepts=goes_down)


class BitsUp(ABC):
    """What a client sends about its bits. Its field `codec` is the codec."""

    codec: Codec[Any]
    part: ClassVar[str] = "mask"

    @abstractmethod
    def say(self, exchange: BitsExchange, view: Thresholds, moved: Moved, turn: Turn) -> tuple[Any, dict[str, float]]:
        """The payload, and observations about it."""

    def uniforms_key(self, exchange: BitsExchange, round_number: int, client: int) -> int | None:
        """Key of the draw that both sides make, if there is one."""
        return None

    def mask(self, exchange: BitsExchange, view: Thresholds, payload: Bits, where: tuple[int, int]) -> Bits:
        """The client's mask, from its payload in that round (`where`: round and client)."""
        return payload


@dataclass(frozen=True)
class Moved:
    """What training has changed."""

    map: ProbabilityMap
    before: Thresholds
    thresholds: Thresholds
    """After training."""
    scores: Tensor
    """After training."""

    def scores_at(self, places: NDArray[np.int64] | slice) -> tuple[Tensor, Tensor]:
        """The scores before and after training, in float64."""
        after = self.scores[places if isinstance(places, slice) else torch.from_numpy(places)]
        return self.map.scores(self.before[places]).double(), after.double()


class BitsExchange(Exchange):
    state_is_counts = True

    def __init__(self, task: Task, bound: BoundMap, up: BitsUp, down: BitsDown, aggregate: BitsAggregate) -> None:
        self.task, self.up, self.down_codec = task, up, down.codec
        self.map: Any = bound  # Also a `ProbabilityMap`.
        self.size = bound.size
        self.beta = aggregate.beta
        if self.down_codec.kind is Kind.VECTOR and not self.down_codec.exact:
            raise ConfigError(f"down.codec={self.down_codec.name}: probabilities go down as counts, or dense")
        self._drawn: tuple[weakref.ref[Thresholds], int, Bits] | None = None
        self.down_name = bound.vector if bound.vector != "scores" else "theta"
        self.period = self.beta.reset_every or max(1, round(task.clients / task.participants))
        if self.period * task.participants > MOST_MASKS:
            raise ConfigError(
                f"{task.participants} masks in each of {self.period} rounds are more than the {MOST_MASKS} that can be "
                "counted before a reset: set reset_every lower"
            )

    # Downlink.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part(self.down_name, self.down_codec, self.size),)

    def start(self) -> State:
        return {"counts": np.zeros(self.size, dtype=np.uint16), "total": 0}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        counts = counts_of(state)
        if self.down_codec.kind is Kind.COUNTS:
            return {self.down_name: counts}
        if counts.total == 0:
            return {self.down_name: (self.thresholds(counts) / FULL).astype(np.float32)}
        return {self.down_name: take((self.beta.table(counts.total) / FULL).astype(np.float32), counts.values)}

    def open(self, payloads: Payloads, round_number: int) -> Thresholds:
        """The thresholds of the broadcast: integers on both sides, from exactly what was sent."""
        theta = payloads[self.down_name]
        if isinstance(theta, Counts):
            return self.thresholds(theta)
        return thresholds_of_theta(np.ascontiguousarray(theta, dtype=np.float32))

    def thresholds(self, counts: Counts) -> Thresholds:
        """Thresholds of the counts. An empty count, as in the first broadcast, stands for the configured initial
        values."""
        if counts.total == 0:
            initial: Thresholds = self.map.initial_thresholds()
            return initial
        return self.beta.thresholds(counts)

    def shared(self, part: Part, view: Thresholds | None, round_number: int, client: int) -> Shared:
        if view is None:
            return Shared(self.size, limit=self.period * self.task.participants)
        key = derive_key(self.task.seed, "codec", round_number, client)
        drawn = self.up.uniforms_key(self, round_number, client)
        return Shared(self.size, key=key, thresholds=view, uniforms_key=drawn)

    # Uplink.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part(self.up.part, self.up.codec, self.size),)

    def trained(self, view: Thresholds) -> Tensor:
        scores: Tensor = self.map.scores(view)
        return scores

    def say(self, view: Thresholds, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        moved = Moved(self.map, view, self.map.moved(view, trained), trained)
        payload, observed = self.up.say(self, view, moved, turn)
        return {self.up.part: payload}, observed

    # Posterior.

    def drawn(self, view: Thresholds, key: int) -> Bits:
        """The mask drawn from a broadcast; kept, for a key that all clients of a round have. Not to be modified."""
        if self._drawn is None or self._drawn[0]() is not view or self._drawn[1] != key:
            self._drawn = weakref.ref(view), key, sample_bits(view, key)
        return self._drawn[2]

    def accumulator(self) -> MaskCounts:
        return MaskCounts(self.size)

    def accumulate(
        self,
        accumulator: MaskCounts,
        view: Thresholds,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        accumulator.add(self.up.mask(self, view, payloads[self.up.part], (round_number, client)))

    def step(self, state: State, accumulator: MaskCounts, round_number: int) -> State:
        if round_number % self.period == 0:
            return {"counts": accumulator.counts, "total": accumulator.total}
        before = counts_of(state)
        return {"counts": before.values + accumulator.counts, "total": before.total + accumulator.total}

    def write(self, state: State, network: str, key: int) -> None:
        self.map.write_thresholds(self.thresholds(counts_of(state)), network, key)


def counts_of(state: State) -> Counts:
    values = state["counts"]
    if not isinstance(values, np.ndarray):
        raise TypeError("a mask state holds an array of counts")
    return Counts(int(state["total"]), values.astype(np.uint16, copy=False))
