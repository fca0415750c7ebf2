"""Clients upload signs, one bit each; the server broadcasts how many were +. Its state is that count.

    down   the number of + among the clients' signs, entropy-coded; in the first round an empty count, which
           stands for initial values known to all sides
    client trains from s, the mean of the signs
    up     sign(s), with the broadcast counts as prior: a client will likely choose what most clients chose
    server s = mean of the signs

Real values, if the map has any, are sent in addition as one float32 vector: their changes are uploaded and averaged,
weighted by examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from subbit.aggregate import MaskCounts, WeightedMean
from subbit.codecs import Codec, Counts, Kind, Shared, Vector, make_codec
from subbit.codecs.codec import Bits
from subbit.codecs.packed import count_ones, pack_bits
from subbit.codecs.sampler import thresholds_of_counts
from subbit.codecs.smallest import Mask
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.exchange.exchange import Exchange, Part, Payloads, State, as_float32
from subbit.exchange.honest import FAR, check_variances
from subbit.exchange.posterior import MOST_MASKS, counts_of
from subbit.models.task import Task, Turn

SIGNS, REAL = "signs", "real"
NOTHING = np.zeros(0, dtype=np.float32)


def keeps_bits(codec: Any) -> bool:
    return codec.kind is Kind.BITS and bool(codec.exact)


@dataclass(frozen=True)
class SignsUp:
    codec: Codec[Bits] = choice("codec", Mask(), accepts=keeps_bits)
    """`mask` takes the smallest code, with the broadcast counts as prior; `packed` costs one bit per sign."""


@dataclass(frozen=True)
class SignsDown:
    broadcast: Literal["mean", "sign"] = "mean"
    """Broadcast the counts, or only the sign that most clients chose."""


class SignMap(Protocol):
    """Interface of a map of signs. The trained vector consists of latent values, of which the signs are sent, and real
    values."""

    vector: str
    """Name of the counts."""
    signs: int
    """Number of latent values."""
    real: int
    """Number of real values, including running statistics."""
    statistics: bool

    def latents(self) -> Tensor:
        """The initial latent values, known to all sides from the configuration."""

    def join(self, latents: Tensor, real: Vector) -> Tensor:
        """The trained vector. Writes running statistics into the module."""

    def split(self, trained: Tensor) -> tuple[Tensor, Vector]:
        """The inverse of `join`; reads running statistics from the module."""

    def write(self, vector: Vector, network: str, key: int) -> None: ...


class Sums:
    """The sums of one round: signs and real changes."""

    def __init__(self, signs: int, real: int) -> None:
        self.signs, self.real = MaskCounts(signs), WeightedMean(real)
        self.order_free = not real


class SignsExchange(Exchange):
    def __init__(self, task: Task, bound: SignMap, up: SignsUp, down: SignsDown) -> None:
        self.task, self.map, self.up, self.down = task, bound, up, down
        asked = task.participants
        require(asked <= MOST_MASKS, f"{asked} clients a round: at most {MOST_MASKS} signs add up")

    # Downlink.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part(self.map.vector, make_codec("counts"), self.map.signs), *self._real_part())

    def _real_part(self) -> tuple[Part, ...]:
        return (Part(REAL, make_codec("dense"), self.map.real),) if self.map.real else ()

    def start(self) -> State:
        state: State = {"counts": np.zeros(self.map.signs, dtype=np.uint16), "total": 0}
        return {**state, REAL: self.map.split(self.task.flat.weights)[1].copy()} if self.map.real else state

    def broadcast(self, state: State, round_number: int) -> Payloads:
        counts = counts_of(state)
        if self.down.broadcast == "sign" and counts.total:
            counts = Counts(1, (2 * counts.values.astype(np.int64) >= counts.total).astype(np.uint16))
        return {self.map.vector: counts, **{part.name: state[part.name] for part in self._real_part()}}

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    def shared(self, part: Part, view: Payloads | None, round_number: int, client: int) -> Shared:
        if part.name == REAL:
            return Shared(part.size)
        if view is None:
            return Shared(part.size, limit=self.task.participants)
        counts: Counts = view[self.map.vector]
        prior = thresholds_of_counts(counts.total, "mean")[counts.values]
        return Shared(part.size, key=derive_key(self.task.seed, "codec", round_number, client), thresholds=prior)

    # Uplink.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part(SIGNS, self.up.codec, self.map.signs), *self._real_part())

    def latents(self, counts: Counts) -> Tensor:
        if not counts.total:
            return self.map.latents()
        balance = 2 * counts.values.astype(np.int64) - counts.total
        return torch.from_numpy((balance / counts.total).astype(np.float32))

    def trained(self, view: Payloads) -> Tensor:
        return self.map.join(self.latents(view[self.map.vector]), view.get(REAL, NOTHING))

    def say(self, view: Payloads, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        latents, real = self.map.split(trained)
        before = pack_bits((self.latents(view[self.map.vector]) >= 0).numpy())
        signs = pack_bits((latents >= 0).numpy())
        changes = {part.name: as_float32(real - view[part.name]) for part in self._real_part()}
        return {SIGNS: signs, **changes}, {"flips": count_ones(signs ^ before)}

    # Server side.

    def examine(self, view: Payloads, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        flat = self.task.flat
        if self.map.statistics and flat.statistics is not None:
            first = self.map.real - flat.statistics.numel()  # They come last among the real values.
            check_variances(flat, view[REAL][first:], payloads[REAL][first:])

    def farthest(self, part: Part, view: Payloads) -> float:
        # Running variances, if any, are squares, so the bound is squared too.
        return super().farthest(part, view) * (FAR if self.map.statistics else 1)

    def accumulator(self) -> Sums:
        return Sums(self.map.signs, self.map.real)

    def accumulate(
        self, accumulator: Sums, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.signs.add(payloads[SIGNS])
        for part in self._real_part():
            accumulator.real.add(payloads[part.name], examples)

    def step(self, state: State, accumulator: Sums, round_number: int) -> State:
        after: State = {"counts": accumulator.signs.counts, "total": accumulator.signs.total}
        for part in self._real_part():
            after[part.name] = as_float32(np.asarray(state[part.name], np.float64) + accumulator.real.mean())
        return after

    def write(self, state: State, network: str, key: int) -> None:
        vector = self.map.join(self.latents(counts_of(state)), np.asarray(state.get(REAL, NOTHING)))
        self.map.write(vector.numpy(), network, key)
